import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the ports that systems give to outgoing connections, and to servers that ask for any port. */
const PORTS = { from: 20_000, to: 32_000 };

/** A port of 127.0.0.1 for a server that must keep its address, also while it is down. */
export async function findFreePort(): Promise<number> {
  const port = randomInt(PORTS.from, PORTS.to);
  const probe = createServer().listen({ port, host: '127.0.0.1', exclusive: true });
  try {
    await once(probe, 'listening');
  } catch {
    return findFreePort();
  }
  probe.close();
  await once(probe, 'close');
  return port;
}
