import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import type { TestUser } from './user.js';

/** Sends a request over a plain socket and reads one byte of the response, then nothing. */
export async function readSlowly(user: TestUser, path: string): Promise<Socket> {
  const { hostname, port } = new URL(user.host.url);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.on('error', () => {});
  const headers = Object.entries(user.headers).map(([name, value]) => `${name}: ${value}`);
  const head = [`GET ${path} HTTP/1.1`, 'Host: x', 'Connection: close', ...headers];
  socket.write([...head, '', ''].join('\r\n'));
  await once(socket, 'readable');
  socket.read(1);
  return socket;
}
