import { createHash, timingSafeEqual } from 'node:crypto';
import { OracleError } from '@sibyl/plugin-kit';

/** Lets in whoever knows the secret; the time it takes tells nothing about it. */
export class CronSecret {
  readonly #digest: Buffer;

  constructor(secret: string) {
    this.#digest = digestOf(`Bearer ${secret}`);
  }

  assert(authorization: string | undefined): void {
    if (timingSafeEqual(digestOf(authorization ?? ''), this.#digest)) return;
    throw new OracleError('missing_authentication', {
      message: 'Provide Authorization: Bearer <CRON_SECRET>',
    });
  }
}

/** Digests have one length, whatever was sent. */
function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
