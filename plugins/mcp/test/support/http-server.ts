import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SSEServerTransport } from '@modelcontextprotocol/sdk/server/sse.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createDemoServer } from './demo-server.ts';

export interface HttpMcpServer {
  readonly url: string;
  readonly port: number;
  /** What its tools were asked, oldest first. */
  readonly calls: unknown[];
  /** The sessions that were opened. */
  readonly sessions: readonly string[];
  close(): Promise<void>;
}

type Handle = (request: IncomingMessage, response: ServerResponse) => unknown;

interface ServerOptions {
  readonly port?: number;
  /** `sessions` by default; `sse` is the transport of servers before 2025. */
  readonly kind?: 'sessions' | 'stateless' | 'sse';
  /** Comes first; returns whether it has answered. */
  readonly intercept?: (request: IncomingMessage, response: ServerResponse) => boolean;
}

/** An MCP server on the given or a free port. It is strict: a session that it does not know gets 404. */
export async function startHttpServer(options: ServerOptions = {}): Promise<HttpMcpServer> {
  const { port = 0, kind = 'sessions', intercept } = options;
  const calls: unknown[] = [];
  const sessions: string[] = [];
  const handle = { sessions: keepSessions, stateless: forgetSessions, sse: serveEvents }[kind](
    calls,
    sessions,
  );
  const server = createServer((request, response) => {
    if (!intercept?.(request, response)) handle(request, response);
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const { port: chosen } = server.address() as AddressInfo;
  const url = `http://127.0.0.1:${chosen}/mcp`;
  return { url, port: chosen, calls, sessions, close: () => end(server) };
}

function keepSessions(calls: unknown[], sessions: string[]): Handle {
  const transports = new Map<string, StreamableHTTPServerTransport>();
  return async (request, response) => {
    const id = request.headers['mcp-session-id'];
    const known = transports.get(String(id));
    if (known) return known.handleRequest(request, response);
    if (id !== undefined) return response.writeHead(404).end();
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (session) => {
        sessions.push(session);
        transports.set(session, transport);
      },
    });
    await createDemoServer(calls).connect(transport as never);
    await transport.handleRequest(request, response);
  };
}

function forgetSessions(calls: unknown[]): Handle {
  return async (request, response) => {
    const transport = new StreamableHTTPServerTransport({});
    response.on('close', () => void transport.close());
    await createDemoServer(calls).connect(transport as never);
    await transport.handleRequest(request, response);
  };
}

function serveEvents(calls: unknown[], sessions: string[]): Handle {
  const transports = new Map<string, SSEServerTransport>();
  return async (request, response) => {
    const { searchParams } = new URL(request.url ?? '', 'http://localhost');
    const known = transports.get(searchParams.get('sessionId') ?? '');
    if (request.method === 'POST')
      return known ? known.handlePostMessage(request, response) : response.writeHead(404).end();
    const transport = new SSEServerTransport('/messages', response);
    transports.set(transport.sessionId, transport);
    sessions.push(transport.sessionId);
    await createDemoServer(calls).connect(transport);
  };
}

function end(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
