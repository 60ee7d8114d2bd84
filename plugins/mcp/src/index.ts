import {
  type Diagnosis,
  type DiagnosisContext,
  definePlugin,
  type SetupContext,
} from '@sibyl/plugin-kit';
import { McpConfig, type McpServer, needsSignIn } from './config.js';
import { Connection, SignInRequiredError } from './connection.js';
import { CALLBACK_PATH } from './grant.js';
import { createCallbackModule, listRoutes } from './routes.js';
import { ServerDirectory } from './server-directory.js';
import { SignIns, signIns } from './sign-ins.js';
import { listTurnTools } from './turn-tools.js';
import { UserServers, userServers } from './user-servers.js';

export { INVOCATION_META } from './connection.js';

/** Tools of MCP servers: those of the operator, and those that users add for themselves. */
export const mcp = definePlugin({
  name: 'mcp',
  version: '0.1.0',
  manifest: {
    title: 'MCP servers',
    summary: 'Tools of the MCP servers this oracle is connected to.',
    whenToUse: ['a tool named server__tool fits what the user asks for'],
    category: 'integration',
    visibility: 'silent',
  },
  configSchema: McpConfig,
  autoDetect: (env) => Boolean(env.MCP_SERVERS) || env.MCP_USER_SERVERS === 'true',
  autoDetectHint: 'set MCP_SERVERS, or MCP_USER_SERVERS=true',
  tables: [userServers, signIns],
  diagnose: diagnoseServers,
  setup: (context) => createServices(context),
  close: ({ directory }) => directory.close(),
  getRequestTools: (turn) => listTurnTools(turn, turn.services),
  routes: ({ services }) => listRoutes(services),
  getNestModules: ({ services }) => [createCallbackModule(services.signIns)],
  getAuthExcludedRoutes: () => [CALLBACK_PATH],
});

function createServices(context: SetupContext<McpConfig>) {
  const { config, database, secrets, logger, oracle, ucan } = context;
  const users = config.MCP_USER_SERVERS
    ? new UserServers({ database, secrets, maxPerUser: config.MCP_SERVERS_PER_USER })
    : undefined;
  const directory = new ServerDirectory(context, users);
  const signIns = new SignIns({
    database,
    secrets,
    logger,
    facts: directory.facts,
    findTarget: (owner, name) => directory.findSignInTarget(owner, name),
  });
  directory.warmUp();
  return { directory, signIns, users, oracle, ucan };
}

/** Checks every server of the operator, for `sibyl doctor`. */
function diagnoseServers(context: DiagnosisContext<McpConfig>): Promise<readonly Diagnosis[]> {
  const checks = Object.entries(context.config.MCP_SERVERS).map(async ([server, settings]) => ({
    name: `MCP server ${server}`,
    ...(await diagnose(server, settings, context)),
  }));
  return Promise.all(checks);
}

async function diagnose(
  name: string,
  server: McpServer,
  context: DiagnosisContext<McpConfig>,
): Promise<Omit<Diagnosis, 'name'>> {
  const connection = new Connection({ name, server, context });
  try {
    const { length } = await connection.tools();
    return { ok: true, text: `${length} tool${length === 1 ? '' : 's'}` };
  } catch (error) {
    if (error instanceof SignInRequiredError) return describeSignIn(server);
    const cause = error instanceof Error ? (error.cause ?? error) : error;
    return {
      ok: false,
      text: cause instanceof Error ? cause.message : String(cause),
      remedy:
        'url' in server
          ? 'Check the url and headers in MCP_SERVERS, and OUTGOING_ALLOW if it has a private address'
          : 'Check command, args and env in MCP_SERVERS; run the command to see its output',
    };
  } finally {
    await connection.close();
  }
}

function describeSignIn(server: McpServer): Omit<Diagnosis, 'name'> {
  if (needsSignIn(server)) return { ok: true, text: 'reachable; each user signs in' };
  return {
    ok: false,
    text: 'it requires authorization',
    remedy: 'Set "oauth": true, or an authorization header, in MCP_SERVERS',
  };
}
