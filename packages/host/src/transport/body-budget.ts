import { OracleError } from '@sibyl/protocol';
import { addressKey } from '@sibyl/server-kit';

/** The part of the budget that one address may use: identities cost nothing, addresses do. */
const ADDRESS_SHARE = 1 / 4;

/** Bounds the bytes of all request bodies that the host is reading at the same time. */
export class BodyBudget {
  private used = 0;
  /** Only addresses that are sending a body: one entry takes at least one connection. */
  private readonly usedBy = new Map<string, number>();

  constructor(private readonly maxBytes: number) {}

  /** Counts the bytes of one body as they arrive; `release` gives them back. */
  open(address: string | undefined) {
    const key = addressKey(address);
    let taken = 0;
    return {
      take: (bytes: number): void => {
        const usedByAddress = (this.usedBy.get(key) ?? 0) + bytes;
        if (this.used + bytes > this.maxBytes)
          throw new OracleError('bodies_too_large', { retryAfterSeconds: 1 });
        if (usedByAddress > this.maxBytes * ADDRESS_SHARE)
          throw new OracleError('too_many_bodies', { retryAfterSeconds: 1 });
        taken += bytes;
        this.used += bytes;
        this.usedBy.set(key, usedByAddress);
      },
      release: (): void => {
        const left = (this.usedBy.get(key) ?? 0) - taken;
        if (left > 0) this.usedBy.set(key, left);
        else this.usedBy.delete(key);
        this.used -= taken;
        taken = 0;
      },
    };
  }
}
