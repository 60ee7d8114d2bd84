import { lookup, Resolver } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { abortable } from '@sibyl/server-kit';
import { SafeFetchError } from './safe-fetch-error.js';

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

export interface ResolveRules {
  readonly allowList: AllowList;
  /** For hosts that the operator named. */
  readonly lookupAllowed: AddressLookup;
  readonly lookup: AddressLookup;
}

/** Resolves a host once; the connection may go to the checked addresses returned and to no other. */
export async function resolveHost(
  url: URL,
  rules: ResolveRules,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const literal = url.hostname.replace(/^\[|\]$/g, '');
  const isAllowed = rules.allowList.includesHost(url);
  const lookup = isAllowed ? rules.lookupAllowed : rules.lookup;
  const addresses = isIP(literal) ? [literal] : await lookUp(url.hostname, lookup, signal);
  if (isAllowed) return addresses;
  // One refused address condemns the host: a mixed answer is how a name is rebound.
  for (const address of addresses) checkAddress(address, url, rules.allowList);
  return addresses;
}

async function lookUp(hostname: string, lookup: AddressLookup, signal: AbortSignal) {
  // The system's lookup cannot be canceled, but the wait for it can.
  const addresses = await abortable(() => lookup(hostname, signal), signal).catch(
    (error: unknown) => {
      throw noAddress(hostname, error);
    },
  );
  if (addresses.length === 0 || addresses.some((address) => isIP(address) === 0)) {
    throw noAddress(hostname);
  }
  return addresses;
}

function noAddress(hostname: string, cause?: unknown): SafeFetchError {
  const { code } = (cause ?? {}) as { readonly code?: unknown };
  const detail = typeof code === 'string' ? ` (${code})` : '';
  const advice = 'check its DNS; a name that only this machine knows must be allow-listed itself';
  return new SafeFetchError('network', `${hostname} has no address${detail}; ${advice}.`, {
    cause,
  });
}

function checkAddress(address: string, { host, protocol }: URL, allowList: AllowList): void {
  if (allowList.includesAddress(address)) return;
  if (!isPublicAddress(address))
    throw new SafeFetchError(
      'address_refused',
      `${host} is not on the public internet; allow-list it if that is meant.`,
      { cause: new Error(`${host} resolves to ${address}`) },
    );
  if (protocol === 'http:')
    throw new SafeFetchError(
      'scheme_refused',
      `http: is refused for ${host}; use https, or allow-list it if that is meant.`,
    );
}

/** Every address of a host name; a signal ends the search. */
export type AddressLookup = (hostname: string, signal: AbortSignal) => Promise<readonly string[]>;

/** Time for one name server to answer, and how often it is asked. */
const TIMEOUT_MS = 3000;
const TRIES = 2;

/** Asks the system, which knows hosts files and search domains, on one of the few threads that files are read with. */
export const systemLookup: AddressLookup = async (hostname) => {
  const answers = await lookup(hostname, { all: true });
  return answers.map(({ address }) => address);
};

/** Asks name servers, by default the system's. Takes no thread, so that names chosen by strangers may be slow. */
export const dnsLookup =
  (servers?: readonly string[]): AddressLookup =>
  async (hostname, signal) => {
    // RFC 6761: no name server is to be asked.
    if (/(^|\.)localhost\.?$/.test(hostname)) return ['127.0.0.1'];
    const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
    if (servers) resolver.setServers(servers);
    const cancel = () => resolver.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    try {
      return await resolveAddresses(hostname, resolver);
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  };

/** Of both kinds; one kind alone will do. */
async function resolveAddresses(hostname: string, resolver: Resolver): Promise<string[]> {
  const answers = await Promise.allSettled([
    resolver.resolve4(hostname),
    resolver.resolve6(hostname),
  ]);
  const found = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
  const [first] = answers;
  if (found.length === 0 && first.status === 'rejected') throw first.reason;
  return found;
}
