import type { Socket } from 'socket.io';

/** The transport below a socket. */
export type Connection = Socket['conn'];

/** Runs a task when the connection has closed, also if it already has. */
export function whenClosed(connection: Connection, task: () => void): void {
  if (connection.readyState === 'closed') task();
  else connection.once('close', task);
}

/** Ends a connection at once, whatever its other end has not taken yet. */
export function cutOff(connection: Connection): void {
  const { transport } = connection as { transport: { socket?: { terminate(): void } } };
  connection.close(true);
  // Closing a WebSocket waits for an answer, which one that takes nothing never sends.
  transport.socket?.terminate();
}
