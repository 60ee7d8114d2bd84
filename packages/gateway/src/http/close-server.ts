import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const CLOSING_MS = 5000;

/** Makes the function that closes a server: answers under way are still sent, for a while. */
export function closerOf(server: Server): () => Promise<void> {
  const idle = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    idle.add(socket);
    socket.once('close', () => idle.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    idle.delete(socket);
    response.once('close', () => {
      if (!socket.destroyed) idle.add(socket);
    });
  });
  return async () => {
    if (!server.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    // Node takes a connection that has not asked yet for a busy one.
    for (const socket of idle) socket.destroy();
    const limit = setTimeout(() => server.closeAllConnections(), CLOSING_MS);
    await closed;
    clearTimeout(limit);
  };
}
