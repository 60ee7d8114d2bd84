import type { Variables } from '@sibyl/server-kit/environment';

const MCP = 'list the server in MCP_SERVERS';
const MATRIX = 'not needed: MATRIX_BASE_URL and MATRIX_ACCESS_TOKEN are enough';

/** Variables of older hosts for the same oracles, which this host does not read, and what to set instead. */
export const OLDER_VARIABLES: Readonly<Record<string, string>> = {
  OPEN_ROUTER_API_KEY:
    'set MODEL=openai-compatible/<model-id>, MODEL_BASE_URL=https://openrouter.ai/api/v1 and MODEL_API_KEY',
  SECP_MNEMONIC: 'set ORACLE_MNEMONIC or ORACLE_PRIVATE_KEY to the key with which the oracle signs',
  SQLITE_DATABASE_PATH: 'set DATA_DIR to the folder of the database',
  REDIS_URL: 'not needed: several hosts share the PostgreSQL database of DATABASE_URL',
  DATABASE_USE_SSL: 'add ?sslmode=require to DATABASE_URL',
  BLOCKSYNC_URI: 'set BLOCKSYNC_GRAPHQL_URL',
  RPC_URL: 'set CHAIN_REST_URL to resolve did:ixo, and GATEWAY_UPSTREAMS for the gateway',
  MATRIX_ORACLE_ADMIN_ACCESS_TOKEN: 'set MATRIX_ACCESS_TOKEN',
  MATRIX_ORACLE_ADMIN_USER_ID: MATRIX,
  MATRIX_ORACLE_ADMIN_PASSWORD: MATRIX,
  MATRIX_RECOVERY_PHRASE: MATRIX,
  MATRIX_VALUE_PIN: MATRIX,
  MATRIX_ACCOUNT_ROOM_ID: MATRIX,
  SLACK_BOT_OAUTH_TOKEN: 'set SLACK_BOT_TOKEN',
  SLACK_USE_SOCKET_MODE: 'set SLACK_APP_TOKEN to turn on Socket Mode',
  DISABLE_CREDITS: 'unset CREDITS_ENABLED to turn credits off',
  SUBSCRIPTION_URL: 'set CREDITS_SERVICE_URL',
  MEMORY_ENGINE_URL: 'not needed: the plugin memory stores facts in the database',
  MEMORY_MCP_URL: MCP,
  FIRECRAWL_MCP_URL: MCP,
  SANDBOX_MCP_URL: MCP,
  SUBSCRIPTION_ORACLE_MCP_URL: MCP,
};

/** One line for each variable that is set but belongs to an older host. */
export const findOlderVariables = (env: Variables): readonly string[] =>
  Object.entries(OLDER_VARIABLES).flatMap(([name, advice]) =>
    env[name] === undefined ? [] : [`${name} has no effect: ${advice}`],
  );
