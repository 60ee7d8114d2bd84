import { isIP } from 'node:net';
import { cidrList } from './public-address.js';

/** What the operator opened beyond the public internet. */
export interface AllowList {
  /** The host was named, so its addresses are trusted whatever they are. */
  includesHost(url: URL): boolean;
  includesAddress(address: string): boolean;
}

/** Reads `host`, `host:port` and CIDR entries; a bad entry throws, since it is a configuration fault. */
export function createAllowList(entries: readonly string[]): AllowList {
  const cidrs = cidrList(entries.filter((entry) => entry.includes('/')));
  const hosts = new Set(entries.filter((entry) => !entry.includes('/')).map(hostKey));
  return {
    includesHost: (url) => hosts.has(url.hostname) || hosts.has(`${url.hostname}:${portOf(url)}`),
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

function portOf(url: URL): string {
  return url.port || (url.protocol === 'https:' ? '443' : '80');
}
