import type { Charge } from '@sibyl/ucan';
import type { Authenticator, Credentials } from './authenticator.js';
import type { Caller } from './caller.js';
import type { HeaderSink, RateLimits } from './rate-limits.js';

interface Attempt {
  readonly credentials: Credentials;
  readonly address: string | undefined;
  readonly headers?: HeaderSink;
  /** Whether it counts against its address already. */
  readonly isCounted?: boolean | undefined;
}

/**
 * Proves who is calling and counts the request. What a token costs is taken from its address before the
 * work, and given back once it is proven; a failure beyond the address's allowance is a 429. A valid
 * caller of that address passes.
 */
export async function proveCaller(
  { authenticator, limits }: { authenticator: Authenticator; limits: RateLimits },
  { credentials, address, headers, isCounted = false }: Attempt,
): Promise<Caller> {
  let cost = 1;
  let isPaid = isCounted;
  let refusal: unknown;
  const charge: Charge = (work) => {
    try {
      const reserved = limits.reserve(address, work, headers);
      cost = reserved.cost;
      isPaid ||= reserved.isPaid;
      return reserved.settle;
    } catch (error) {
      refusal = error;
      return undefined;
    }
  };
  const caller = await authenticator
    .authenticate(credentials, { charge })
    .catch((error: unknown) => {
      if (refusal) throw refusal;
      if (!isPaid) limits.takeAnonymous(address, headers);
      throw error;
    });
  await limits.takeCaller(caller, address, headers, cost);
  return { ...caller, charge: limits.chargeFor(caller, address) };
}
