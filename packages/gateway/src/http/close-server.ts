import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';

const CLOSING_MS = 5000;

/** Makes the function that closes a server: answers under way are still sent, for a while. */
export function closerOf(server: Server): () => Promise<void> {
  // Node takes a connection that has not asked for anything yet for a busy one.
  const unused = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    unused.add(socket);
    socket.once('close', () => unused.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage) => unused.delete(socket));
  return async () => {
    if (!server.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of unused) socket.destroy();
    server.closeIdleConnections();
    const limit = setTimeout(() => server.closeAllConnections(), CLOSING_MS);
    await closed;
    clearTimeout(limit);
  };
}
