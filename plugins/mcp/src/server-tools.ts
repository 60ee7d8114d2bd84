import { createHash } from 'node:crypto';
import type { PluginContext, Tool, TurnContext } from '@sibyl/plugin-kit';
import { isProtected } from './config.js';
import type { Connection, McpTool } from './connection.js';

/** As much as a page may say of its tools. */
const DESCRIPTION_LENGTH = 4096;

type Needs = Pick<PluginContext, 'oracle' | 'ucan'>;

/** The tools of one server, as the agent may call them. */
export async function serverTools(connection: Connection, needs: Needs): Promise<Tool[]> {
  const tools = await connection.tools();
  return tools.map((tool) => toTool(tool, connection, needs));
}

function toTool(tool: McpTool, connection: Connection, needs: Needs): Tool {
  const { name: server, server: settings } = connection;
  return {
    name: toolName(server, tool.name),
    description: (tool.description || tool.title || tool.name).slice(0, DESCRIPTION_LENGTH),
    inputSchema: tool.inputSchema,
    // Above the server's own limit, so that its text is the one the model is told.
    timeoutMs: settings.timeoutMs + 1000,
    visibility: 'always',
    run: async (args: Record<string, unknown>, turn: TurnContext) => {
      const invocation = isProtected(settings, tool.name)
        ? await takeInvocation({ server, tool: tool.name, turn, needs })
        : undefined;
      return connection.call({ tool: tool.name, args, signal: turn.signal, invocation });
    },
  };
}

interface ProtectedCall {
  readonly server: string;
  readonly tool: string;
  readonly turn: TurnContext;
  readonly needs: Needs;
}

/** The user's own permission for this call, used up by it. */
async function takeInvocation({ server, tool, turn, needs }: ProtectedCall): Promise<string> {
  const { oracle, ucan } = needs;
  const { mcpInvocations } = turn.request;
  const token = mcpInvocations[toolName(server, tool)] ?? mcpInvocations[tool];
  const wanted = { can: 'mcp/call', with: `ixo:oracle:${oracle.did}:mcp/${server}/${tool}` };
  if (token === undefined) {
    throw new Error(
      `The user has to permit this call: the message must bring mcpInvocations["${toolName(server, tool)}"] with ${wanted.can} on ${wanted.with}`,
    );
  }
  const accepted = await ucan.acceptOnce(token, { ...wanted, issuer: turn.user.did });
  if ('fault' in accepted) {
    turn.logger.warn({ server, tool, fault: accepted.fault }, 'MCP invocation refused');
    throw new Error("The user's invocation for this call is not valid, or was used before");
  }
  return token;
}

/** What every provider accepts. */
const LONGEST = 64;
const HASH_LENGTH = 8;

/** `server__tool`, in letters every provider accepts; one that had to be changed ends with a hash of the original. */
export function toolName(server: string, tool: string): string {
  const plain = `${server}__${tool}`;
  const name = plain.replaceAll(/[^A-Za-z0-9_-]/g, '_');
  if (name === plain && name.length <= LONGEST) return name;
  const hash = createHash('sha256').update(plain).digest('hex').slice(0, HASH_LENGTH);
  return `${name.slice(0, LONGEST - HASH_LENGTH - 1)}_${hash}`;
}
