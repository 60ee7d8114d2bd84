import { definePlugin, type SetupContext } from '@sibyl/plugin-kit';
import { McpConfig } from './config.js';
import { diagnoseServers } from './diagnose.js';
import { CALLBACK_PATH } from './grant.js';
import { createCallbackModule, listRoutes } from './routes.js';
import { ServerDirectory } from './server-directory.js';
import { SignIns, signInMigrations } from './sign-ins.js';
import { listTurnTools } from './turn-tools.js';
import { UserServers, userServerMigrations } from './user-servers.js';

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
  migrations: { ...signInMigrations, ...userServerMigrations },
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
