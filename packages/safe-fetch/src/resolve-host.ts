import { lookup, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import { abortable } from '@sibyl/server-kit';
import { type AllowList, isPublicAddress } from './address-rules.js';
import { SafeFetchError } from './safe-fetch-error.js';

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
