import type { MCPClient } from '@ai-sdk/mcp';
import type { PluginContext } from '@sibyl/plugin-kit';
import { bodyWithInvocation, carryInvocations } from './invocation-meta.js';
import type { McpServer } from './server-config.js';

const MAX_REPLY_BYTES = 4 * 1024 ** 2;

type SafeFetch = PluginContext['fetch'];

/** Connects to a server; the SDK is loaded by the first host that has one. */
export async function openClient(
  server: McpServer,
  { fetch, logger }: Pick<PluginContext, 'fetch' | 'logger'>,
): Promise<MCPClient> {
  const { createMCPClient } = await import('@ai-sdk/mcp');
  return createMCPClient({
    transport: 'url' in server ? httpTransport(server, fetch) : await stdioTransport(server),
    clientName: 'sibyl',
    initializationOptions: { timeout: server.timeoutMs },
    // Of streams beside the calls, which not every server has: a call that fails says so itself.
    onUncaughtError: (err) => logger.info({ err }, 'fault beside the calls of an MCP server'),
  });
}

function httpTransport({ url, headers }: Extract<McpServer, { url: string }>, fetch: SafeFetch) {
  return {
    type: 'http' as const,
    url,
    headers,
    fetch: ((input: string | URL, init: RequestInit = {}) =>
      fetch(input, {
        ...init,
        body: bodyWithInvocation(init.body) as NonNullable<RequestInit['body']>,
        maxBytes: MAX_REPLY_BYTES,
        // Streams stay open; each call has a limit of its own.
        timeoutMs: Number.POSITIVE_INFINITY,
      })) as typeof globalThis.fetch,
  };
}

async function stdioTransport({ command, args, env }: Extract<McpServer, { command: string }>) {
  const { StdioMCPTransport } = await import('@ai-sdk/mcp/mcp-stdio');
  return carryInvocations(new StdioMCPTransport({ command, args, env, stderr: 'ignore' }));
}
