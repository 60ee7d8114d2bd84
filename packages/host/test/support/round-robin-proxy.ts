import { once } from 'node:events';
import {
  Agent,
  createServer,
  type IncomingMessage,
  request as requestOver,
  type ServerResponse,
} from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';

/**
 * A load balancer that knows nothing about the hosts: each request and each WebSocket goes to the next one. If that host
 * refuses the connection, the one after it is used; a connection that breaks later breaks for the client too.
 */
export interface RoundRobinProxy {
  readonly url: string;
  close(): void;
}

export async function startRoundRobinProxy(targets: readonly string[]): Promise<RoundRobinProxy> {
  let next = 0;
  /** All targets, beginning with the one that is due. */
  const rotate = () => {
    const first = next++ % targets.length;
    return [...targets.slice(first), ...targets.slice(0, first)];
  };
  // Without reused connections: a broken one would look like a failed request.
  const agent = new Agent({ keepAlive: false });
  const open = new Set<Socket>();
  const server = createServer((request, response) => {
    forward(request, response, { targets: rotate(), agent }).catch(() => response.destroy());
  });
  server.on('connection', (socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
  server.on('upgrade', (request, socket: Socket, head: Buffer) => {
    void upgrade(request, socket, { targets: rotate(), head });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
      agent.destroy();
    },
  };
}

async function forward(
  request: IncomingMessage,
  response: ServerResponse,
  { targets, agent }: { readonly targets: readonly string[]; readonly agent: Agent },
): Promise<void> {
  const body = await buffer(request);
  for (const target of targets) {
    const { url, method, headers } = request;
    const outgoing = requestOver(target + url, { method, headers, agent });
    // A client that leaves must not keep a stream of the host open.
    response.once('close', () => outgoing.destroy());
    const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>;
    outgoing.end(body);
    try {
      const [answer] = await answered;
      answer.once('error', () => response.destroy());
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      response.flushHeaders();
      answer.pipe(response);
      return;
    } catch (error) {
      if (!isRefused(error)) throw error;
    } finally {
      outgoing.on('error', () => response.destroy());
    }
  }
  response.writeHead(503, { 'retry-after': '1' }).end();
}

async function upgrade(
  { method, url, rawHeaders }: IncomingMessage,
  client: Socket,
  { targets, head }: { readonly targets: readonly string[]; readonly head: Buffer },
): Promise<void> {
  client.on('error', () => undefined);
  for (const target of targets) {
    const { hostname, port } = new URL(target);
    const upstream = connect(Number(port), hostname);
    try {
      await once(upstream, 'connect');
    } catch {
      continue;
    }
    upstream.on('error', () => undefined);
    upstream.once('close', () => client.destroy());
    client.once('close', () => upstream.destroy());
    const lines = rawHeaders.flatMap((text, i) =>
      i % 2 === 0 ? [`${text}: ${rawHeaders[i + 1]}`] : [],
    );
    upstream.write(`${[`${method} ${url} HTTP/1.1`, ...lines].join('\r\n')}\r\n\r\n`);
    upstream.write(head);
    upstream.pipe(client).pipe(upstream);
    return;
  }
  client.destroy();
}

const isRefused = (error: unknown) => (error as NodeJS.ErrnoException).code === 'ECONNREFUSED';
