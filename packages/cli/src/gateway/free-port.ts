import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';

/** The port if nobody listens there, any free one for 0; fails as listening does. */
export async function freePort(port: number, host: string): Promise<number> {
  const server = createServer().listen({ port, host, exclusive: true });
  await once(server, 'listening');
  const { port: free } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return free;
}
