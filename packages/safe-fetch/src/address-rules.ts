import { BlockList, isIP } from 'node:net';

/** IPv4 ranges without public hosts: IANA special-purpose ranges, multicast, and metadata services. */
const REFUSED_V4 = [
  '0.0.0.0/8', // this network, unspecified
  '10.0.0.0/8', // private
  '100.64.0.0/10', // carrier-grade NAT, Alibaba metadata
  '127.0.0.0/8', // loopback
  '168.63.129.16/32', // Azure host services, a public address by number only
  '169.254.0.0/16', // link-local, cloud metadata
  '172.16.0.0/12', // private
  '192.0.0.0/24', // protocol assignments, Oracle metadata
  '192.0.2.0/24', // documentation
  '192.88.99.0/24', // 6to4 relays
  '192.168.0.0/16', // private
  '198.18.0.0/15', // benchmarks
  '198.51.100.0/24', // documentation
  '203.0.113.0/24', // documentation
  '224.0.0.0/4', // multicast
  '240.0.0.0/4', // reserved, broadcast
];

/** Outside it lie loopback, ULA, link-local, multicast, IPv4-mapped, IPv4-compatible and NAT64. */
const GLOBAL_UNICAST_V6 = ['2000::/3'];

const REFUSED_V6 = [
  '2001::/23', // Teredo, ORCHID, benchmarks
  '2001:db8::/32', // documentation
  '2002::/16', // 6to4, wraps any IPv4 address
  '3fff::/20', // documentation
];

/** Read on first use: most programs that load this module fetch nothing as they start. */
let ranges: Record<'refusedV4' | 'refusedV6' | 'globalV6', BlockList> | undefined;

function getRanges() {
  ranges ??= {
    refusedV4: cidrList(REFUSED_V4),
    refusedV6: cidrList(REFUSED_V6),
    globalV6: cidrList(GLOBAL_UNICAST_V6),
  };
  return ranges;
}

/** Whether an IP address belongs to one host on the public internet. */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !getRanges().refusedV4.check(address, 'ipv4');
    case 6:
      return isPublicV6(address);
    default:
      return false;
  }
}

function isPublicV6(address: string): boolean {
  // A zone index names a local interface.
  if (address.includes('%')) return false;
  const { globalV6, refusedV6 } = getRanges();
  return globalV6.check(address, 'ipv6') && !refusedV6.check(address, 'ipv6');
}

/** Reads CIDRs; a bad one is a configuration fault and throws. */
function cidrList(cidrs: readonly string[]): BlockList {
  const list = new BlockList();
  for (const cidr of cidrs) {
    const [, address = '', prefix = ''] = /^([0-9a-fA-F:.]+)\/(\d{1,3})$/.exec(cidr) ?? [];
    const family = isIP(address);
    if (family === 0 || Number(prefix) > (family === 4 ? 32 : 128)) {
      throw new TypeError(`"${cidr}" is not a CIDR; write for instance 10.0.0.0/8.`);
    }
    list.addSubnet(address, Number(prefix), family === 4 ? 'ipv4' : 'ipv6');
  }
  return list;
}

/** What the operator opened beyond the public internet. */
export interface AllowList {
  /** The operator named the host, so all its addresses are trusted. */
  includesHost(url: URL): boolean;
  includesAddress(address: string): boolean;
}

/** Reads `host`, `host:port` and CIDR entries; a bad entry throws, since it is a configuration fault. */
export function createAllowList(entries: readonly string[]): AllowList {
  const cidrs = cidrList(entries.filter((entry) => entry.includes('/')));
  const hosts = new Set(entries.filter((entry) => !entry.includes('/')).map(hostKey));
  return {
    includesHost: (url) => hosts.has(url.hostname) || hosts.has(`${url.hostname}:${readPort(url)}`),
    includesAddress(address) {
      const family = isIP(address);
      return family !== 0 && cidrs.check(address, family === 4 ? 'ipv4' : 'ipv6');
    },
  };
}

/** Spells an entry as URL does, so that `LOCALHOST` and `0x7f.1` compare equal to what is fetched. */
function hostKey(entry: string): string {
  const bracketed = isIP(entry) === 6 ? `[${entry}]` : entry;
  const [, host = '', port] = /^([^\s/?#@*\\]+?)(?::(\d{1,5}))?$/.exec(bracketed) ?? [];
  const url = URL.parse(`http://${host}/`);
  if (!url || url.port) {
    throw new TypeError(`"${entry}" is not a host, host:port or CIDR.`);
  }
  return port === undefined ? url.hostname : `${url.hostname}:${Number(port)}`;
}

function readPort(url: URL): string {
  return url.port || (url.protocol === 'https:' ? '443' : '80');
}
