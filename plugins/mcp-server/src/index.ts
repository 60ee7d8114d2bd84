import { definePlugin, defineRoute, findPageUrl, sharedKey } from '@sibyl/plugin-kit';
import type { RouteError } from '@sibyl/plugin-kit/surface';
import { limitedList } from '@sibyl/protocol';
import { z } from 'zod';
import { McpEndpoint, type McpExtension } from './endpoint.js';
import { tables } from './subscriptions.js';

export type { McpExtension };

/** For plugins with `dependsOn: ['mcp-server']`: adds tools, resources and prompts to the MCP server. */
export const MCP_SERVER = sharedKey<Pick<McpEndpoint, 'extend' | 'reportUpdate'>>('mcpServer');

/** Lets MCP clients, such as editors and other agents, ask the oracle. */
export const mcpServer = definePlugin({
  name: 'mcp-server',
  version: '0.1.0',
  manifest: {
    title: 'MCP server',
    summary: 'Serves MCP clients, which ask the oracle with a tool.',
    whenToUse: ['never: its tools are for other agents'],
    category: 'integration',
    visibility: 'silent',
  },
  tables,
  setup: (context) => new McpEndpoint({ ...context, pageUrl: findPageUrl(context) }),
  close: (endpoint) => endpoint.close(),
  getSharedState: ({ services: endpoint }) =>
    MCP_SERVER.share({
      extend: (extension) => endpoint.extend(extension),
      reportUpdate: (update) => endpoint.reportUpdate(update),
    }),
  routes: ({ services: endpoint }) => [
    defineRoute({
      method: 'POST',
      path: '/mcp',
      auth: 'access-key',
      checksOrigin: true,
      summary: 'Model Context Protocol 2026-07-28 and 2025-11-25, as streamable HTTP',
      startsWork: (body) =>
        [body].flat().filter((message) => Question.safeParse(message).success).length,
      body: McpMessages,
      acceptsManyValues: true,
      mediaTypes: ['application/json', 'text/event-stream'],
      otherReplies: {
        202: { when: 'The body has no requests' },
        404: { when: 'The server has no such method; before 2026-07-28 the reply is 200' },
        406: NOT_ACCEPTABLE,
      },
      formatError,
      handler: ({ caller, body, headers, signal }) =>
        endpoint.post({ caller, body, headers, signal }),
    }),
    defineRoute({
      method: 'GET',
      path: '/mcp',
      auth: 'access-key',
      checksOrigin: true,
      summary: 'Continues the stream of an MCP call, or sends updates of resources',
      headers: {
        'Last-Event-ID': 'The last event that the client received',
        'Mcp-Session-Id': 'As the reply to `initialize` has it',
      },
      mediaTypes: ['text/event-stream'],
      otherReplies: {
        404: { when: 'The stream does not exist, or it is at another host' },
        405: { when: 'There is nothing to continue: no session, or no event' },
        406: NOT_ACCEPTABLE,
      },
      formatError,
      handler: ({ caller, headers, signal }) => endpoint.get({ caller, headers, signal }),
    }),
  ],
});

const NOT_ACCEPTABLE = { when: '`Accept` lacks a media type that the protocol requires' };

/** The SDK validates them, and answers in the protocol. */
const McpMessages = z
  .union([z.looseObject({}), limitedList(z.looseObject({}), { max: 1_000 })])
  .meta({ id: 'McpMessages' });

/** The call that starts a turn. */
const Question = z.object({
  method: z.literal('tools/call'),
  params: z.object({ name: z.literal('ask') }),
});

const formatError = ({ status, code, message }: RouteError) => ({
  jsonrpc: '2.0',
  id: null,
  error: { code: chooseCode(status), message, data: { code } },
});

/** As JSON-RPC defines them: an invalid request, an internal error, and those of the server. */
function chooseCode(status: number): number {
  if (status === 400) return -32600;
  return status >= 500 ? -32603 : -32000;
}
