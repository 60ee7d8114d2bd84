import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { addressKey } from '@sibyl/server-kit';

/** `1.2.3.4:5678` and `[2001:db8::1]:5678`, as some proxies write addresses. */
const WITH_PORT = /^(?:\[([^\]]+)\]|(\d+\.\d+\.\d+\.\d+))(?::\d+)?$/;

/**
 * The key that limits count the sender of a request by: of the addresses that proxies forwarded, the one
 * that the outermost trusted proxy saw. An IPv6 address counts as its /64.
 */
export function readAddressKey({ socket, headers }: IncomingMessage, proxies: number): string {
  const peer = socket.remoteAddress;
  if (proxies === 0) return addressKey(peer);
  const forwarded = String(headers['x-forwarded-for'] ?? '')
    .split(',')
    .map((address) => address.trim())
    .filter(Boolean);
  const claimed = forwarded.at(-proxies) ?? forwarded[0] ?? '';
  const [, bracketed, dotted] = WITH_PORT.exec(claimed) ?? [];
  const address = bracketed ?? dotted ?? claimed;
  // Anything else is not an address, and must not become a key that a client chooses.
  return addressKey(isIP(address) ? address : peer);
}
