import { createHmac, timingSafeEqual } from 'node:crypto';
import { OracleError } from '@sibyl/plugin-kit';

/** Older deliveries may have been recorded by somebody and sent again. */
const MAX_AGE_SECONDS = 5 * 60;

export interface SignedRequest {
  /** `X-Slack-Signature`. */
  readonly signature: string | undefined;
  /** `X-Slack-Request-Timestamp`. */
  readonly timestamp: string | undefined;
  /** The body, byte for byte as it came. */
  readonly body: Uint8Array;
}

/** Tells what Slack sent from what anybody could have sent. */
export class RequestSignature {
  readonly #secret: string;
  readonly #clock: () => number;

  constructor(secret: string, clock: () => number) {
    this.#secret = secret;
    this.#clock = clock;
  }

  /** Throws one and the same refusal, whatever is wrong. */
  assert({ signature = '', timestamp = '', body }: SignedRequest): void {
    const sent = Buffer.from(signature);
    const expected = Buffer.from(this.sign(timestamp, body));
    const isGenuine = sent.length === expected.length && timingSafeEqual(sent, expected);
    if (isGenuine && this.#isFresh(timestamp)) return;
    throw new OracleError('missing_authentication', {
      message: 'The delivery is not signed by Slack, or too old',
    });
  }

  sign(timestamp: string, body: Uint8Array): string {
    const hmac = createHmac('sha256', this.#secret);
    return `v0=${hmac.update(`v0:${timestamp}:`).update(body).digest('hex')}`;
  }

  #isFresh(timestamp: string): boolean {
    if (!/^\d{1,12}$/.test(timestamp)) return false;
    return Math.abs(this.#clock() / 1000 - Number(timestamp)) <= MAX_AGE_SECONDS;
  }
}
