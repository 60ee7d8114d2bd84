import { isIPv6 } from 'node:net';

/** The key an address is limited by: one IPv6 customer holds a whole /64. */
export function addressKey(address: string | undefined): string {
  if (!address) return 'unknown';
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (mapped) return mapped;
  if (!isIPv6(address)) return address;
  return `${expand(address).slice(0, 4).join(':')}::/64`;
}

function expand(address: string): string[] {
  const [head = '', tail] = address.split('%', 1)[0]?.split('::') ?? [];
  const left = head.split(':').filter(Boolean);
  if (tail === undefined) return left;
  const right = tail.split(':').filter(Boolean);
  return [...left, ...Array<string>(8 - left.length - right.length).fill('0'), ...right];
}
