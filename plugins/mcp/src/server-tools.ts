import { createHash, randomUUID } from 'node:crypto';
import type {
  CallToolResult,
  ContentBlock,
  ElicitRequest,
  ElicitResult,
  GetPromptResult,
  ReadResourceResult,
} from '@modelcontextprotocol/client';
import {
  defineTool,
  mediaResult,
  type PluginContext,
  type Tool,
  type TurnContext,
} from '@sibyl/plugin-kit';
import { z } from 'zod';
import { isProtected } from './config.js';
import type { Connection, McpTool } from './connection.js';

/** The limit for tools of pages, too. */
const DESCRIPTION_LENGTH = 4096;
/** More would fill the model's context. */
const MAX_TOOLS = 128;

export type Identity = Pick<PluginContext, 'oracle' | 'ucan'>;

/** The tools of one server, as the agent may call them. */
export async function listServerTools(connection: Connection, identity: Identity): Promise<Tool[]> {
  const tools = await connection.tools();
  return tools.slice(0, MAX_TOOLS).map((tool) => toTool(tool, connection, identity));
}

function toTool(tool: McpTool, connection: Connection, identity: Identity) {
  const { name: server, server: settings } = connection;
  return defineTool({
    name: buildToolName(server, tool.name),
    description: (tool.description || tool.title || tool.name).slice(0, DESCRIPTION_LENGTH),
    inputSchema: tool.inputSchema,
    // Above the connection's own limit, whose error text is better.
    timeoutMs: settings.timeoutMs + 1000,
    visibility: 'always',
    run: async (args, turn) => {
      const invocation = isProtected(settings, tool.name)
        ? await acceptInvocation({ server, tool: tool.name, turn, identity })
        : undefined;
      const scope = { signal: turn.signal, elicit: createElicit(server, turn), invocation };
      return readCallResult(await connection.call(tool, args, scope));
    },
  });
}

/** The action of a page that can answer questions of servers. */
const ELICITATION_ACTION = 'mcp_elicitation';
const MAX_QUESTIONS = 5;
const MAX_QUESTION_LENGTH = 16 * 1024;

const ElicitAnswer = z.object({
  action: z.enum(['accept', 'decline', 'cancel']),
  content: z
    .record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]))
    .optional(),
});

/**
 * Forwards a server's question to the user's page, which has as long as for any action. A question without an answer is
 * declined, and the user gets a warning.
 */
export function createElicit(server: string, turn: TurnContext) {
  let questions = 0;
  const decline = (message: string): ElicitResult => {
    const question = message.slice(0, 200);
    turn.warn(
      'mcp_question_declined',
      `${server} asked: "${question}". It was declined because it was not answered`,
    );
    return { action: 'decline' };
  };
  return async (params: ElicitRequest['params']): Promise<ElicitResult> => {
    questions += 1;
    const { message } = params;
    const canAnswer = turn.request.agActions?.some(({ name }) => name === ELICITATION_ACTION);
    const isLong = JSON.stringify(params).length > MAX_QUESTION_LENGTH;
    if (!canAnswer || isLong || questions > MAX_QUESTIONS || !('requestedSchema' in params))
      return decline(message);
    const args = { server, message, requestedSchema: { ...params.requestedSchema } };
    const asked = { toolCallId: randomUUID(), toolName: ELICITATION_ACTION, args };
    try {
      const answer = await turn.client.call({
        event: 'action_call',
        ...asked,
        signal: turn.signal,
      });
      const { action, content } = ElicitAnswer.parse(answer);
      return action === 'accept' ? { action, content: content ?? {} } : { action };
    } catch {
      return decline(message);
    }
  };
}

interface ProtectedCall {
  readonly server: string;
  readonly tool: string;
  readonly turn: TurnContext;
  readonly identity: Identity;
}

/** Accepts the user's invocation for this call, once. */
async function acceptInvocation({ server, tool, turn, identity }: ProtectedCall): Promise<string> {
  const { oracle, ucan } = identity;
  const { mcpInvocations } = turn.request;
  const token = mcpInvocations[buildToolName(server, tool)] ?? mcpInvocations[tool];
  const wanted = { can: 'mcp/call', with: `ixo:oracle:${oracle.did}:mcp/${server}/${tool}` };
  if (token === undefined) {
    throw new Error(
      `The user has to permit this call: the message must contain mcpInvocations["${buildToolName(server, tool)}"] with ${wanted.can} on ${wanted.with}`,
    );
  }
  const accepted = await ucan.acceptOnce(token, { ...wanted, issuer: turn.user.did });
  if ('error' in accepted) {
    turn.logger.warn({ server, tool, error: accepted.error }, 'MCP invocation refused');
    throw new Error("The user's invocation for this call is not valid, or was used before");
  }
  return token;
}

/** What every provider accepts. */
const LONGEST = 64;
const HASH_LENGTH = 8;

/** `server__tool`, in letters every provider accepts; one that had to be changed ends with a hash of the original. */
export function buildToolName(server: string, tool: string): string {
  const plain = `${server}__${tool}`;
  const name = plain.replaceAll(/[^A-Za-z0-9_-]/g, '_');
  if (name === plain && name.length <= LONGEST) return name;
  const hash = createHash('sha256').update(plain).digest('hex').slice(0, HASH_LENGTH);
  return `${name.slice(0, LONGEST - HASH_LENGTH - 1)}_${hash}`;
}

type Part = string | ReturnType<typeof mediaResult>;

/** The result for the model: text, structured content, or a list with files. One that is marked as an error is thrown. */
export function readCallResult(result: CallToolResult): unknown {
  const parts = result.content.map(readContent);
  const text = parts.filter((part) => typeof part === 'string').join('\n');
  if (result.isError) throw new Error(text || 'The tool failed without a reason');
  const files = parts.filter((part) => typeof part !== 'string');
  const { structuredContent } = result;
  if (structuredContent === undefined) return combine(parts);
  return files.length > 0 ? [structuredContent, ...files] : structuredContent;
}

/** The contents of a resource for the model. */
export const readResourceResult = ({ contents }: ReadResourceResult): unknown =>
  combine(contents.map(readResource));

/** The messages of a prompt for the model, each with its role. */
export const readPromptResult = ({ description, messages }: GetPromptResult): unknown => ({
  ...(description && { description }),
  messages: messages.map(({ role, content }) => ({ role, content: readContent(content) })),
});

/** Text alone as text, a file alone as a file, and otherwise all parts in their order. */
function combine(parts: readonly Part[]): unknown {
  if (parts.every((part) => typeof part === 'string')) return parts.join('\n');
  return parts.length === 1 ? parts[0] : parts;
}

function readContent(content: ContentBlock): Part {
  switch (content.type) {
    case 'text':
      return content.text;
    case 'image':
    case 'audio':
      return readFile(content.data, content.mimeType, content.type);
    case 'resource':
      return readResource(content.resource);
    case 'resource_link':
      return `[resource ${content.uri}: ${content.title ?? content.name}]`;
    default:
      content satisfies never;
      return '[unknown content]';
  }
}

function readResource(resource: ReadResourceResult['contents'][number]): Part {
  if ('text' in resource) return resource.text;
  return readFile(resource.blob, resource.mimeType, resource.uri);
}

const MEDIA_TYPE = /^[\w.+-]{1,100}\/[\w.+-]{1,100}$/;

function readFile(base64: string, mimeType: string | undefined, description: string): Part {
  const [type = ''] = (mimeType ?? '').split(';');
  return mediaResult({
    mediaType: MEDIA_TYPE.test(type.trim())
      ? type.trim().toLowerCase()
      : 'application/octet-stream',
    data: new Uint8Array(Buffer.from(base64, 'base64')),
    description: description.slice(0, 200),
  });
}
