import http, { type RequestListener } from 'node:http';
import https from 'node:https';
import type { AddressInfo, Server } from 'node:net';
import { onTestFinished } from 'vitest';

interface LocalServer {
  readonly port: number;
  /** `127.0.0.1:port`, as an allow-list entry or a URL's host. */
  readonly host: string;
  readonly url: string;
}

interface Place {
  readonly address?: string;
  readonly port?: number;
  readonly tls?: { readonly key: string; readonly cert: string };
}

/** Serves on loopback until the test ends. */
export async function serve(listener: RequestListener, place: Place = {}): Promise<LocalServer> {
  const { address = '127.0.0.1', port = 0, tls } = place;
  const server = tls ? https.createServer(tls, listener) : http.createServer(listener);
  await listen(server, port, address);
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const bound = (server.address() as AddressInfo).port;
  const host = `${address}:${bound}`;
  return { port: bound, host, url: `${tls ? 'https' : 'http'}://${host}/` };
}

/** Serves raw bytes to any request, for answers that Node's server would not write. */
export async function serveRaw(answer: string): Promise<LocalServer> {
  const net = await import('node:net');
  const server = net.createServer((socket) => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.end(answer));
  });
  await listen(server, 0, '127.0.0.1');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { port, host: `127.0.0.1:${port}`, url: `http://127.0.0.1:${port}/` };
}

function listen(server: Server, port: number, address: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, address, resolve);
  });
}
