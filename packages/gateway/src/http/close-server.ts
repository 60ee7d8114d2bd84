import type { Server } from 'node:http';
import type { Socket } from 'node:net';

const CLOSING_MS = 5000;

/** Makes the function that closes a server: answers under way are still sent, for a while. */
export function closerOf(server: Server, busy: ReadonlySet<Socket>): () => Promise<void> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  return async () => {
    if (!server.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    // Node takes a connection that has not asked yet for a busy one.
    for (const socket of sockets) if (!busy.has(socket)) socket.destroy();
    const limit = setTimeout(() => server.closeAllConnections(), CLOSING_MS);
    await closed;
    clearTimeout(limit);
  };
}
