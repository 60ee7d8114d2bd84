import { isIP } from 'node:net';
import type { AllowList } from './allow-list.js';
import type { AddressLookup } from './look-up.js';
import { isPublicAddress } from './public-address.js';
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
  const addresses = await untilAborted(lookup(hostname, signal), signal).catch((error: unknown) => {
    throw noAddress(hostname, error);
  });
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

/** What the system looks up cannot be cancelled, so the wait for it is. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener('abort', stop, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop));
  });
}
