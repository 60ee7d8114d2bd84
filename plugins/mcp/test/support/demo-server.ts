import { setTimeout } from 'node:timers/promises';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { ElicitResultSchema } from '@modelcontextprotocol/sdk/types.js';
import { z } from 'zod';

export const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';

/** A real MCP server with a few tools; `calls` keeps what it was asked, `_meta` included. */
export function createDemoServer(calls: unknown[] = []): McpServer {
  const server = new McpServer({ name: 'demo', version: '1.0.0' });
  addPlainTools(server, calls);
  addWaitingTools(server, calls);
  addLargeTools(server);
  server.registerTool('grow', { description: 'Adds a tool' }, () => {
    server.registerTool('grown', { description: 'New' }, () => ({ content: [] }));
    return { content: [{ type: 'text', text: 'grown' }] };
  });
  server.registerResource('notes', 'demo://notes', { mimeType: 'text/plain' }, ({ href }) => ({
    contents: [{ uri: href, text: 'Buy milk' }],
  }));
  server.registerResource('pixel', 'demo://pixel', { mimeType: 'image/png' }, ({ href }) => ({
    contents: [{ uri: href, mimeType: 'image/png', blob: PIXEL }],
  }));
  server.registerPrompt(
    'greet',
    { description: 'Greets', argsSchema: { name: z.string() } },
    ({ name }) => ({
      messages: [{ role: 'user', content: { type: 'text', text: `Say hello to ${name}` } }],
    }),
  );
  return server;
}

function addPlainTools(server: McpServer, calls: unknown[]): void {
  server.registerTool(
    'add.numbers',
    {
      description: 'Adds two numbers',
      inputSchema: { a: z.number().describe('The first'), b: z.number() },
    },
    ({ a, b }, { _meta }) => {
      calls.push({ tool: 'add.numbers', a, b, _meta });
      return { content: [{ type: 'text', text: String(a + b) }] };
    },
  );
  server.registerTool('fail', { description: 'Always fails' }, () => ({
    content: [{ type: 'text', text: 'out of paper' }],
    isError: true,
  }));
  server.registerTool('picture', { description: 'Draws' }, () => ({
    content: [
      { type: 'text', text: 'A pixel' },
      { type: 'image', mimeType: 'image/png', data: PIXEL },
    ],
  }));
}

function addLargeTools(server: McpServer): void {
  server.registerTool('rows', { description: 'Returns too many values' }, () => ({
    content: [],
    structuredContent: { rows: Array.from({ length: 60_000 }, () => [0]) },
  }));
  server.registerTool('page', { description: 'Returns too many bytes' }, () => ({
    content: [{ type: 'text', text: 'x'.repeat(5_000_000) }],
  }));
}

function addWaitingTools(server: McpServer, calls: unknown[]): void {
  server.registerTool(
    'hang',
    { description: 'Never returns' },
    ({ signal }: { signal: AbortSignal }) => {
      calls.push('hang started');
      return new Promise((resolve) => {
        signal.addEventListener('abort', () => {
          calls.push('hang cancelled');
          resolve({ content: [] });
        });
      });
    },
  );
  server.registerTool(
    'announce',
    { description: 'Reports a change, then waits' },
    async (extra) => {
      await extra.sendNotification({ method: 'notifications/tools/list_changed' });
      await setTimeout(3000);
      return { content: [{ type: 'text', text: 'announced' }] };
    },
  );
  server.registerTool('ask', { description: 'Asks the user' }, async ({ sendRequest }) => {
    const requestedSchema = {
      type: 'object' as const,
      properties: { color: { type: 'string' as const } },
    };
    const params = { message: 'Which color?', requestedSchema };
    const answer = await sendRequest({ method: 'elicitation/create', params }, ElicitResultSchema);
    return { content: [{ type: 'text', text: JSON.stringify(answer) }] };
  });
}
