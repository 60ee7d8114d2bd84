import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import type { Feature } from '@sibyl/plugin-kit/host';
import { ReasoningEffort, RuleMatch } from '@sibyl/protocol';
import { createSafeFetch } from '@sibyl/safe-fetch';
import { type Variables, variable } from '@sibyl/server-kit/environment';
import { z } from 'zod';

const { flag, wholeNumber, positive, seconds, port, list, did, httpUrl } = variable;
const secret = z.string().trim().min(1);
const size = variable.size.refine((value) => value >= 1024, { error: 'must be at least 1kb' });

const dids = list
  .pipe(z.array(did))
  .refine((items) => items.length > 0, { error: 'must name at least one DID' });

const filesUrl = httpUrl.refine(isBucket, {
  error: 'must contain a key, a secret and a bucket: https://KEY:SECRET@host/bucket',
});

function isBucket(text: string): boolean {
  const { username, password, pathname } = new URL(text);
  return username !== '' && password !== '' && /^\/[^/]+/.test(pathname);
}

const proxies = z
  .string()
  .refine((text) => text !== 'true', {
    error: 'must name the proxies you trust: a number of hops, or addresses such as loopback',
  })
  .transform((text) => (/^\d+$/.test(text) ? Number(text) : list.parse(text)))
  .refine((value) => typeof value === 'number' || value.every(isProxy), {
    error: 'must be a number of hops, or loopback, linklocal, uniquelocal, addresses or CIDRs',
  });

function isProxy(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  if (['loopback', 'linklocal', 'uniquelocal'].includes(text)) return true;
  const maxBits = isIP(address) === 6 ? 128 : 32;
  // All addresses, which is what no bits mean, are not proxies.
  const isRange =
    bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) >= 1 && Number(bits) <= maxBits);
  return isIP(address) !== 0 && isRange && rest.length === 0;
}

const allowed = list.refine(canAllow, {
  error: 'must be hosts, host:port or CIDRs, separated by commas',
});

function canAllow(entries: readonly string[]): boolean {
  try {
    createSafeFetch({ allow: entries });
    return true;
  } catch {
    return false;
  }
}

const FEATURE = /^([a-z][a-z0-9-]*)=(true|false|auto)$/;
const features = list
  .refine((items) => items.every((item) => FEATURE.test(item)), {
    error: 'must be plugins and whether they load, such as memory=false,slack=true',
  })
  .transform((items) => Object.fromEntries(items.map(parseFeature)));

function parseFeature(text: string): [string, Feature] {
  const [, name = '', choice] = FEATURE.exec(text) ?? [];
  return [name, choice === 'auto' ? 'auto' : choice === 'true'];
}

const approvals = list.refine((items) => items.every((item) => RuleMatch.safeParse(item).success), {
  error: 'must be tools, plugin:name or can:ability, such as send_*,plugin:mcp',
});

const modelId = z.string().regex(/^(offline|[^\s/,]+\/[^\s,]+)$/, {
  error: 'must be provider/model-id, such as openai/gpt-6-luna, or offline',
});
const modelIds = list.pipe(z.array(modelId));

const tokens = z.int().min(1);
const price = z.number().min(0);

/** What an operator knows about a model; everything else is looked up, discovered or learned. */
export const ModelSettings = z.strictObject({
  vision: z.boolean().optional().describe('Whether it accepts images'),
  tools: z.boolean().optional().describe('Whether it calls tools'),
  reasoning: z
    .union([z.boolean(), ReasoningEffort])
    .optional()
    .describe('Whether it reasons before it answers, or how much by default'),
  structuredOutput: z.boolean().optional().describe('Whether it can be forced to follow a schema'),
  contextTokens: z.int().min(512).optional().describe('Its context window'),
  outputTokens: tokens.optional().describe('The longest answer to ask for'),
  sampling: z
    .strictObject({
      temperature: z.number().min(0).max(2).optional(),
      topP: z.number().min(0).max(1).optional(),
      topK: tokens.optional(),
      presencePenalty: z.number().min(-2).max(2).optional(),
      frequencyPenalty: z.number().min(-2).max(2).optional(),
      seed: z.int().optional(),
    })
    .optional(),
  prices: z
    .strictObject({ input: price, output: price, cachedInput: price.optional() })
    .optional()
    .describe('Per million tokens, in the currency of your choice'),
});
export type ModelSettings = z.infer<typeof ModelSettings>;

/** Settings by model id; a key that ends with `*` is for all ids that begin with it. */
const SettingsById = z.record(z.string().min(1), ModelSettings);
export type ModelSettingsById = z.infer<typeof SettingsById>;

/** MODEL_SETTINGS: JSON, or the path of a file with it. */
const modelSettings = z.string().transform((text, context): ModelSettingsById => {
  const report = (message: string) => {
    context.issues.push({ code: 'custom', message, input: text });
    return z.NEVER;
  };
  const read = text.trim().startsWith('{') ? { json: text } : readFile(text.trim());
  if ('error' in read) return report(read.error);
  let value: unknown;
  try {
    value = JSON.parse(read.json);
  } catch (error) {
    return report(`is not valid JSON: ${(error as Error).message}`);
  }
  const { data, error } = SettingsById.safeParse(value);
  return data ?? report(`does not fit: ${z.prettifyError(error).replace(/\s+/g, ' ')}`);
});

function readFile(path: string): { readonly json: string } | { readonly error: string } {
  try {
    return { json: readFileSync(path, 'utf8') };
  } catch (error) {
    return { error: `must be a JSON object, or the path of a file: ${(error as Error).message}` };
  }
}

/** Every variable of the host; defaults are written as in the environment. */
export const Environment = z.object({
  PORT: port
    .prefault('3000')
    .describe('Port of the HTTP server and the sockets; 0 for any free port'),
  HOST: z.string().prefault('127.0.0.1').describe('Address to listen on; 0.0.0.0 for all'),
  DATA_DIR: z.string().prefault('./data').describe('Folder of the SQLite file and the oracle key'),
  DATABASE_URL: z
    .url({ protocol: /^postgres(ql)?$/, error: 'must be a postgres:// URL' })
    .optional()
    .describe(
      'PostgreSQL database to use instead of SQLite, such as postgres://user:password@host/database',
    ),
  DATABASE_DIRECT_URL: z
    .url({ protocol: /^postgres(ql)?$/, error: 'must be a postgres:// URL' })
    .optional()
    .describe(
      'PostgreSQL itself, or a pooler in session mode, if DATABASE_URL is a pooler such as PgBouncer; for three connections that keep their session',
    ),
  DATABASE_POOL_SIZE: positive
    .refine((value) => value <= 1000, { error: 'must be at most 1000' })
    .prefault('10')
    .describe('Maximum number of PostgreSQL connections of the store; the host opens three more'),
  DISK_MIN_FREE: variable.size
    .prefault('100mb')
    .describe(
      'Minimum free disk space for SQLite; below it, new sessions, messages and delegations are rejected, and uploads and imports that would use it. 0: no limit',
    ),
  RETENTION_DAYS: positive
    .optional()
    .describe(
      'Days after which sessions without a new message, turns that wait for an answer, receipts and activity are deleted; `sibyl retention` shows what that is. Unset: never',
    ),
  IMPORT_LIMIT: size
    .prefault('2gb')
    .describe('Maximum size of an archive that a user imports, compressed or not, such as 2gb'),
  ORACLE_NAME: z.string().min(1).max(80).prefault('Sibyl').describe('Name of the oracle'),
  ORACLE_MNEMONIC: z
    .string()
    .trim()
    .min(1)
    .optional()
    .describe('Derives the oracle key from these words'),
  ORACLE_PRIVATE_KEY: z
    .string()
    .trim()
    .min(1)
    .optional()
    .describe('The oracle key: 64 hex digits, or the M… format of ucanto'),
  ORACLE_DID: did
    .optional()
    .describe(
      'DID of the oracle, if it is not the did:key of its key; the DID document must list the key',
    ),
  ORACLE_ENTITY_DID: did.optional().describe('DID of the entity this oracle belongs to'),
  CORS_ORIGIN: variable.origins
    .prefault('*')
    .describe('Origins whose pages may call this host, separated by commas; * for all'),
  BODY_LIMIT: size.prefault('1mb').describe('Maximum size of a request body, such as 512kb or 1mb'),
  FILES_BODY_LIMIT: size
    .prefault('16mb')
    .describe(
      'Maximum size of a request body where messages contain their files: the OpenAI API, AG-UI, the AI SDK and A2A; at most a quarter of BODIES_LIMIT',
    ),
  BODIES_LIMIT: size
    .prefault('64mb')
    .describe(
      'Maximum size of all request bodies that are being read, such as 64mb, and the same for messages of sockets; one address may use a quarter of it',
    ),
  TRUST_PROXY: proxies
    .optional()
    .describe('Proxies whose X-Forwarded-For header is trusted: a number of hops, or addresses'),
  UCAN_AUTH_MAX_TTL_SECONDS: seconds
    .prefault('900')
    .describe('Maximum lifetime of an auth invocation'),
  UCAN_ALLOW_DELEGATION_LOGIN: flag
    .prefault('true')
    .describe('Whether a delegation alone authenticates a caller'),
  DELEGATION_LOGIN_MAX_DAYS: positive
    .optional()
    .describe(
      'Delegations that expire later than this many days from now, or never, cannot log in; unset: no limit',
    ),
  CALLERS_ALLOW: dids
    .optional()
    .describe(
      'DIDs that may call this host, separated by commas, in addition to those that redeem an invitation of `sibyl invite`; unset: all DIDs',
    ),
  OPERATORS: dids
    .optional()
    .describe(
      'DIDs of those who operate this host, separated by commas, in addition to those of `sibyl operators add`; they may use the operator page and call this host',
    ),
  PUBLIC_URL: httpUrl
    .optional()
    .describe('Public address of this host, for links, such as https://oracle.example'),
  MODEL: modelId
    .optional()
    .describe(
      'Model that answers: openai/…, anthropic/…, google/…, openai-compatible/…, or offline; unset: the default model of the provider whose key is set, otherwise offline',
    ),
  MODEL_SMALL: modelId
    .optional()
    .describe(
      'Cheaper model for titles and summaries; unset: the small model of the provider of MODEL',
    ),
  MODEL_CHOICES: modelIds
    .prefault('')
    .describe('Other models that a message may select, separated by commas'),
  MODEL_FALLBACK: modelIds
    .prefault('')
    .describe(
      'Models that answer while the chosen one is down, in this order, separated by commas',
    ),
  MODEL_SETTINGS: modelSettings
    .prefault('{}')
    .describe(
      'What you know about models: JSON, or the path of a JSON file, such as {"openai-compatible/my-model": {"vision": true, "contextTokens": 8192}}; see models.md',
    ),
  MODEL_BASE_URL: httpUrl
    .optional()
    .describe('Address of the openai-compatible server, such as http://127.0.0.1:11434/v1'),
  MODEL_API_KEY: secret
    .optional()
    .describe('Key for the openai-compatible server, if it requires one'),
  MODEL_FIRST_PART_TIMEOUT_SECONDS: seconds
    .prefault('120')
    .describe('How long a model may take to begin its answer'),
  MODEL_STALL_TIMEOUT_SECONDS: seconds
    .prefault('60')
    .describe('How long a model may pause during its answer'),
  EMBEDDING_MODEL: modelId
    .optional()
    .describe(
      'Model with which files and memories are found by meaning: openai/…, google/… or openai-compatible/…; unset: they are found by their words',
    ),
  EMBEDDING_BASE_URL: httpUrl
    .optional()
    .describe('Address of the server of EMBEDDING_MODEL; unset: that of its provider'),
  EMBEDDING_API_KEY: secret
    .optional()
    .describe('Key for the server of EMBEDDING_MODEL; unset: that of its provider'),
  OPENAI_API_KEY: secret.optional().describe('Key for openai/… models'),
  OPENAI_BASE_URL: httpUrl.optional().describe("Address to use instead of OpenAI's"),
  ANTHROPIC_API_KEY: secret.optional().describe('Key for anthropic/… models'),
  ANTHROPIC_BASE_URL: httpUrl.optional().describe("Address to use instead of Anthropic's"),
  GOOGLE_GENERATIVE_AI_API_KEY: secret.optional().describe('Key for google/… models'),
  GOOGLE_GENERATIVE_AI_BASE_URL: httpUrl.optional().describe("Address to use instead of Google's"),
  ORACLE_INSTRUCTIONS: z
    .string()
    .max(20_000)
    .optional()
    .describe('Instructions of the operator for every answer, as plain text'),
  SESSIONS_PER_USER: wholeNumber
    .prefault('1000')
    .describe(
      'Maximum number of sessions of one user; 0: no limit. Users of plugins, such as Slack, are not limited',
    ),
  FILE_LIMIT: size.prefault('200mb').describe('Maximum size of a file that a user uploads'),
  FILES_PER_USER: size
    .prefault('2gb')
    .describe(
      'Maximum size of all files of one user; a small file counts as 4 kB. The text that is read from them may have as much again',
    ),
  FILES_MAX: size
    .optional()
    .describe(
      'Maximum size of all files of all users; unset: what the disk holds. Uploads and imports leave twice DISK_MIN_FREE free for messages',
    ),
  FILES_PER_ADDRESS_PER_DAY: size
    .prefault('20gb')
    .describe(
      'Maximum size of what the new users of one IP address send as files and archives in a day; its known users may send as much',
    ),
  FILES_PER_NEW_USER_PER_DAY: size
    .prefault('500mb')
    .describe('Maximum size of the files that one new user sends in a day'),
  FILES_URL: filesUrl
    .optional()
    .describe(
      'S3-compatible storage for the bytes of files, such as https://KEY:SECRET@s3.example/bucket?region=eu-central-1; unset: the database',
    ),
  TURN_MAX_STEPS: positive.prefault('20').describe('Maximum number of model calls in one turn'),
  TURN_CONTEXT_TOKENS: positive
    .prefault('100000')
    .describe(
      'Maximum number of tokens to send to a model, even if its context window is larger; older turns are summarized',
    ),
  TURNS_PER_USER: positive
    .prefault('20')
    .describe(
      'Maximum number of running and queued turns of one user, in all sessions and on all hosts',
    ),
  PAUSED_RUNS_PER_USER: positive
    .prefault('50')
    .describe('Maximum number of turns of one user that wait for an answer, in all sessions'),
  APPROVALS: approvals
    .prefault('')
    .describe(
      'Tools whose calls every user must approve, separated by commas: names, plugin:name or can:ability, with * for any rest, such as send_*,plugin:mcp',
    ),
  RESUME_TURNS: flag
    .prefault('false')
    .describe(
      'Whether the running turns of a host that died are continued from their last step instead of being closed as interrupted',
    ),
  TURNS_MAX: positive
    .prefault('1000')
    .describe(
      'Maximum number of running and queued turns on this host, shared by address and user; more are rejected with 429 or 503',
    ),
  TURN_MAX_CHARACTERS: positive
    .prefault('1000000')
    .describe(
      'Maximum number of characters that models may write in one turn: text, reasoning and tool arguments, including sub-agents',
    ),
  TURN_MAX_SECONDS: seconds
    .prefault('1800')
    .describe('Maximum duration of one turn; its output until then is kept'),
  MODEL_TOKENS_PER_DAY: positive
    .optional()
    .describe(
      'Maximum number of model tokens of all users together per day (UTC), including titles and summaries; unset: no limit',
    ),
  PLUGIN_TIMEOUT_SECONDS: seconds
    .prefault('15')
    .describe(
      'How long a hook of a plugin may take in a turn, which then continues without it; a gate or middleware that takes longer fails the turn or the tool call',
    ),
  STORE_WAIT_SECONDS: seconds
    .prefault('10')
    .describe(
      'How long to retry storing an answer before its caller gets an error, and how long a new session or message may wait for PostgreSQL before it is rejected',
    ),
  STREAMS_PER_USER: positive
    .prefault('100')
    .describe(
      'Maximum number of requests of one user that wait for or stream an answer, in all sessions on this host; more are rejected with 429',
    ),
  STREAM_STALL_SECONDS: seconds
    .prefault('60')
    .describe('How long a client of a stream may read nothing before it is disconnected'),
  RUN_LOG_HOURS: wholeNumber
    .prefault('24')
    .describe('How long the frames of an ended turn can be replayed; its message is kept'),
  SOCKETS_PER_USER: positive.prefault('100').describe('Maximum number of open sockets of one user'),
  SOCKETS_PER_ADDRESS: positive
    .prefault('2000')
    .describe('Maximum number of open sockets of one IP address'),
  SOCKETS_MAX: positive
    .prefault('10000')
    .describe('Maximum number of open sockets of all users together; more are rejected with 503'),
  SOCKET_BACKLOG_LIMIT: size
    .prefault('64mb')
    .describe(
      'Maximum size of unread data of all sockets together; beyond it, the socket with the most is disconnected and may reconnect',
    ),
  SOCKET_MESSAGE_LIMIT: size
    .prefault('256kb')
    .describe('Maximum size of a message from a socket, such as the result of a browser tool'),
  BROWSER_CALL_TIMEOUT_SECONDS: seconds
    .prefault('15')
    .describe("How long the user's page may take to answer a browser tool or an action"),
  CHAIN_REST_URL: httpUrl.optional().describe('REST endpoint of the chain, to resolve did:ixo'),
  BLOCKSYNC_GRAPHQL_URL: httpUrl.optional().describe('Blocksync endpoint, to resolve did:ixo'),
  OUTGOING_ALLOW: allowed
    .prefault('')
    .describe(
      'Private hosts or CIDRs that this host may call on behalf of users, separated by commas',
    ),
  RATE_LIMIT_PER_MINUTE: positive
    .prefault('600')
    .describe('Maximum number of requests of one caller per minute'),
  RATE_LIMIT_ANONYMOUS_PER_MINUTE: positive
    .prefault('300')
    .describe('Maximum number of unauthenticated requests of one IP address per minute'),
  METRICS_PORT: port
    .optional()
    .describe('Port for Prometheus metrics at /metrics; unset: no metrics'),
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl
    .optional()
    .describe('Address of an OpenTelemetry collector (OTLP over HTTP); unset: no traces'),
  OTEL_CAPTURE_CONTENT: flag
    .prefault('false')
    .describe('Whether traces contain messages, arguments and results of tools'),
  FEATURES: features
    .prefault('')
    .describe(
      'Plugins to enable or disable, such as memory=false,slack=true; all others load if they are configured',
    ),
  NODE_ENV: z
    .string()
    .optional()
    .describe('`production` skips the validation of events from plugins'),
  LOG_LEVEL: variable.logLevel.prefault('info').describe('Minimum log level'),
});
export type Environment = z.infer<typeof Environment>;

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
