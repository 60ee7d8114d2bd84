import { OracleError } from '@sibyl/protocol';
import {
  createRefusal,
  type Holder,
  Places,
  RateLimiter,
  Rounds,
  toShareKey,
} from '@sibyl/server-kit';

export interface DailyBytes {
  /** What the known users of one address, and its new ones, may each send in a day. */
  readonly maxBytesPerAddress: number;
  /** What one new user may send in a day. */
  readonly maxBytesPerNewUser: number;
}

/** Uploads at the same time, each of which holds two chunks. */
const MAX_UPLOADS = 64;
const MAX_UPLOADS_PER_USER = 4;
const MAX_WRITES = 2;
const RETRY_SECONDS = 5;
const DAY_MS = 24 * 60 * 60 * 1000;
/** What a body of unknown length pays for at a time. */
const STEP_BYTES = 4 * 1024 * 1024;

/** Shares what the host receives at the same time, and what it stores in a day: keys that cost nothing could fill its disk. */
export class UploadLimits {
  private readonly places = new Places({ max: MAX_UPLOADS, maxPerOwner: MAX_UPLOADS_PER_USER });
  private readonly rounds = new Rounds({ places: MAX_WRITES, sliceMs: 0 });
  private readonly bytes = new RateLimiter({ windowMs: DAY_MS });

  constructor(private readonly daily: DailyBytes) {}

  /** Takes a place for an upload; returns the function that gives it back. */
  enter(holder: Holder): () => void {
    const { ok: release, error } = this.places.take(holder);
    if (release) return release;
    throw createRefusal(error, { owner: 'too_many_uploads', total: 'uploads_full' }, RETRY_SECONDS);
  }

  /** Writes one chunk: few at a time, so that the writes of others do not wait for many. */
  write<T>(holder: Holder, work: () => Promise<T>): Promise<T> {
    return this.rounds.run(holder, work);
  }

  /** Charges what is stored to its user and address. */
  charge(holder: Holder, bytes: number): void {
    const { maxBytesPerNewUser } = this.daily;
    const key = toUserKey(holder);
    if (!holder.isKnown) this.require(key, maxBytesPerNewUser, bytes);
    this.chargeArchive(holder, bytes);
    if (!holder.isKnown) this.bytes.take(key, maxBytesPerNewUser, bytes);
  }

  /** Gives back what was charged and is not stored. */
  refund(holder: Holder, bytes: number): void {
    const { maxBytesPerNewUser, maxBytesPerAddress } = this.daily;
    this.bytes.refund(toShareKey(holder), maxBytesPerAddress, bytes);
    if (!holder.isKnown) this.bytes.refund(toUserKey(holder), maxBytesPerNewUser, bytes);
  }

  /** Charges an archive to its address as it arrives; what it contains is charged when it is stored. */
  chargeArchive(holder: Holder, bytes: number): void {
    const { maxBytesPerAddress } = this.daily;
    const key = toShareKey(holder);
    this.require(key, maxBytesPerAddress, bytes);
    this.bytes.take(key, maxBytesPerAddress, bytes);
  }

  private require(key: string, limit: number, bytes: number): void {
    const { allowed, resetSeconds } = this.bytes.peek(key, limit, bytes);
    if (allowed) return;
    throw new OracleError('upload_limit_reached', { retryAfterSeconds: resetSeconds });
  }
}

const toUserKey = ({ owner }: Holder) => `user ${owner}`;

/** What is charged while something is stored. */
export class DailyCharge {
  private bytes = 0;

  constructor(
    private readonly limits: Pick<UploadLimits, 'charge' | 'refund'>,
    private readonly holder: Holder,
  ) {}

  /** Throws if too little is left of the day's limits. */
  add(bytes: number): void {
    this.limits.charge(this.holder, bytes);
    this.bytes += bytes;
  }

  /** Gives back what is beyond the bytes that are stored. */
  settle(stored: number): void {
    this.limits.refund(this.holder, Math.max(0, this.bytes - stored));
    this.bytes = Math.min(this.bytes, stored);
  }
}

/** Charges a body: what it declares before it is read, and what is beyond that as it arrives. */
export async function* chargeBody(
  {
    body,
    declaredBytes = 0,
  }: {
    readonly body: AsyncIterable<Uint8Array>;
    readonly declaredBytes?: number | undefined;
  },
  charge: (bytes: number) => void,
): AsyncGenerator<Uint8Array> {
  let paid = declaredBytes;
  let bytes = 0;
  charge(paid);
  for await (const chunk of body) {
    bytes += chunk.length;
    for (; bytes > paid; paid += STEP_BYTES) charge(STEP_BYTES);
    yield chunk;
  }
}
