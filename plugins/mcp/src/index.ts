import { definePlugin, type TurnContext } from '@sibyl/plugin-kit';
import { McpConfig } from './config.js';
import { Connection } from './connection.js';
import { serverTools } from './server-tools.js';

export { INVOCATION_META } from './connection.js';

/** A turn waits no longer than this for a server that has to be connected first. */
const PATIENCE_MS = 3000;

interface McpServersReady {
  /** The tools of all servers; those of a server that is away are missing, and the agent is told. */
  toolsOf(turn: TurnContext): Promise<Awaited<ReturnType<typeof serverTools>>>;
}

/** Tools of MCP servers that the operator has configured. */
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
  getSharedState(context) {
    const connections = Object.entries(context.config.MCP_SERVERS).map(
      ([name, server]) => new Connection({ name, server, context }),
    );
    for (const connection of connections) {
      // Already now, so that the first turn need not wait; a server that is away is tried again.
      connection.tools().catch(() => undefined);
      context.onClose(() => connection.close());
    }
    const toolsOf = async (turn: TurnContext) => {
      const asked = connections.map(async (connection) => {
        try {
          return await inTime(serverTools(connection, context));
        } catch {
          turn.degrade(`MCP server ${connection.name}`, 'its tools cannot be used now');
          return [];
        }
      });
      return (await Promise.all(asked)).flat();
    };
    return { mcp: { toolsOf } satisfies McpServersReady };
  },
  getRequestTools: (turn) => (turn.shared.mcp as McpServersReady).toolsOf(turn),
});

async function inTime<T>(work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const overdue = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('it does not answer')), PATIENCE_MS);
  });
  try {
    return await Promise.race([work, overdue]);
  } finally {
    clearTimeout(timer);
  }
}
