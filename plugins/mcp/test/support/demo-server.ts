import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { z } from 'zod';

/** A real MCP server with a few tools; `calls` keeps what it was asked, `_meta` included. */
export function createDemoServer(calls: unknown[] = []): McpServer {
  const server = new McpServer({ name: 'demo', version: '1.0.0' });
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
  server.registerTool(
    'hang',
    { description: 'Never returns' },
    ({ signal }: { signal: AbortSignal }) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve({ content: [] }));
      }),
  );
  return server;
}
