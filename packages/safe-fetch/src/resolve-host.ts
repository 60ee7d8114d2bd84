import { lookup as systemLookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { AllowList } from './allow-list.js';
import { isPublicAddress } from './public-address.js';
import { SafeFetchError, toSafeFetchError } from './safe-fetch-error.js';

/** Every address of a host name. */
export type AddressLookup = (hostname: string) => Promise<readonly string[]>;

export interface ResolveRules {
  readonly allowList: AllowList;
  readonly lookup: AddressLookup;
}

/** Asks the system, as any other connection of the process would. */
export const lookupAddresses: AddressLookup = async (hostname) => {
  const answers = await systemLookup(hostname, { all: true });
  return answers.map(({ address }) => address);
};

/** Resolves a host once; the connection may go to the checked addresses returned and to no other. */
export async function resolveHost(
  url: URL,
  rules: ResolveRules,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const literal = url.hostname.replace(/^\[|\]$/g, '');
  const addresses = isIP(literal) ? [literal] : await lookUp(url.hostname, rules.lookup, signal);
  if (rules.allowList.includesHost(url)) return addresses;
  // One refused address condemns the host: a mixed answer is how a name is rebound.
  for (const address of addresses) checkAddress(address, url, rules.allowList);
  return addresses;
}

async function lookUp(hostname: string, lookup: AddressLookup, signal: AbortSignal) {
  const addresses = await untilAborted(lookup(hostname), signal).catch((error: unknown) => {
    throw toSafeFetchError(error, hostname);
  });
  if (addresses.length === 0 || addresses.some((address) => isIP(address) === 0)) {
    throw new SafeFetchError('network', `${hostname} has no address; check its DNS.`);
  }
  return addresses;
}

function checkAddress(address: string, { host, protocol }: URL, allowList: AllowList): void {
  if (allowList.includesAddress(address)) return;
  if (!isPublicAddress(address))
    throw new SafeFetchError(
      'address_refused',
      `${host} is at ${address}, not on the public internet; allow-list it if that is meant.`,
    );
  if (protocol === 'http:')
    throw new SafeFetchError(
      'scheme_refused',
      `http: is refused for ${host}; use https, or allow-list it if that is meant.`,
    );
}

/** A DNS query cannot be cancelled, so the wait for it is. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
