import type { IncomingMessage } from 'node:http';

/** Who is at the other end: of the addresses that proxies passed on, the one the outermost of ours saw. */
export function addressOf({ socket, headers }: IncomingMessage, proxies: number): string {
  const peer = socket.remoteAddress ?? '';
  if (proxies === 0) return peer;
  const passedOn = String(headers['x-forwarded-for'] ?? '')
    .split(',')
    .map((address) => address.trim())
    .filter(Boolean);
  return passedOn.at(-proxies) ?? passedOn[0] ?? peer;
}
