import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createDemoServer } from './demo-server.ts';

export interface HttpMcpServer {
  readonly url: string;
  readonly port: number;
  /** What its tools were asked, oldest first. */
  readonly calls: unknown[];
  close(): Promise<void>;
}

/** A streamable HTTP MCP server without sessions, on the given or a free port. */
export async function startHttpServer(port = 0): Promise<HttpMcpServer> {
  const calls: unknown[] = [];
  const server = createServer(async (request, response) => {
    const transport = new StreamableHTTPServerTransport({});
    response.on('close', () => void transport.close());
    await createDemoServer(calls).connect(transport as never);
    await transport.handleRequest(request, response);
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const { port: chosen } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${chosen}/mcp`, port: chosen, calls, close: () => end(server) };
}

function end(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
