import {
  definePlugin,
  type SetupContext,
  type Tool,
  type TurnContext,
  withTimeout,
} from '@sibyl/plugin-kit';
import { McpConfig } from './config.js';
import { Connection } from './connection.js';
import { listServerTools } from './server-tools.js';

export { INVOCATION_META } from './connection.js';

/** How long a turn waits for a server that is not connected yet. */
const CONNECT_TIMEOUT_MS = 3000;

/** Tools of the MCP servers that the operator configured. */
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
  autoDetect: (env) => Boolean(env.MCP_SERVERS),
  autoDetectHint: 'set MCP_SERVERS',
  setup: (context) => {
    const connections = Object.entries(context.config.MCP_SERVERS).map(
      ([name, server]) => new Connection({ name, server, context }),
    );
    // Connects now, so that the first turn need not wait; failures are retried later.
    for (const connection of connections) connection.tools().catch(() => undefined);
    const { oracle, ucan } = context;
    return { connections, oracle, ucan };
  },
  close: async ({ connections }) => {
    await Promise.all(connections.map((connection) => connection.close()));
  },
  getRequestTools: (turn) => listTools(turn, turn.services),
});

interface McpServices extends Pick<SetupContext, 'oracle' | 'ucan'> {
  readonly connections: readonly Connection[];
}

/** The tools of all servers, except those that cannot be reached, which the agent is informed of. */
async function listTools(
  turn: TurnContext<unknown>,
  { connections, ...identity }: McpServices,
): Promise<Tool[]> {
  const lists = connections.map(async (connection) => {
    try {
      const limit = { ms: CONNECT_TIMEOUT_MS, message: 'it does not answer' };
      return await withTimeout(limit, () => listServerTools(connection, identity));
    } catch {
      turn.degrade(`MCP server ${connection.name}`, 'its tools cannot be used now');
      return [];
    }
  });
  return (await Promise.all(lists)).flat();
}
