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

/** Proves who is calling. A failure beyond the address's allowance is a 429; a valid caller of that address passes. */
export async function proveCaller(
  { authenticator, limits }: { authenticator: Authenticator; limits: RateLimits },
  { credentials, address, headers, isCounted }: Attempt,
): Promise<Caller> {
  const allowLookup = !(await limits.isExhausted(address));
  try {
    return await authenticator.authenticate(credentials, { allowLookup });
  } catch (refusal) {
    if (!isCounted) await limits.takeAnonymous(address, headers);
    throw refusal;
  }
}
