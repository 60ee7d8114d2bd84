import { finished, type Readable } from 'node:stream';
import type { Result } from '@sibyl/protocol';

export interface ByteLimits {
  /** For all keys together. */
  readonly maxBytes: number;
  readonly maxBytesPerKey?: number;
}

/** The limit that a reservation would exceed; `key` if it would exceed both. */
export type ExceededLimit = 'key' | 'total';

/** Limits the memory that requests in progress hold, for each key, such as a caller, and in total. */
export class ByteBudget {
  private readonly maxBytes: number;
  private readonly maxBytesPerKey: number;
  /** Only keys that hold something: an entry lasts as long as its reservations. */
  private readonly byKey = new Map<string, number>();
  private readonly shared = new Map<object, SharedReservation>();
  private bytes = 0;

  constructor({ maxBytes, maxBytesPerKey = maxBytes }: ByteLimits) {
    this.maxBytes = maxBytes;
    this.maxBytesPerKey = maxBytesPerKey;
  }

  /** All bytes that are reserved now. */
  get used(): number {
    return this.bytes;
  }

  /** Starts a reservation that holds nothing, to be resized as the size becomes known. */
  open(key: string): ByteReservation {
    return new ByteReservation((change) => this.add(key, change));
  }

  reserve(key: string, bytes: number): Result<ByteReservation, ExceededLimit> {
    const reservation = this.open(key);
    const error = reservation.resize(bytes);
    return error === undefined ? { ok: reservation } : { error };
  }

  /**
   * Reserves memory that several requests hold. It counts once, for the first key, until every one of them has
   * called the function that this returns; a second call of the same function does nothing.
   */
  reserveShared(key: string, memory: Uint8Array): Result<() => void, ExceededLimit> {
    let shared = this.shared.get(memory);
    if (!shared) {
      const { ok: reservation, error } = this.reserve(key, memory.length);
      if (error !== undefined) return { error };
      shared = { reservation, holders: 0 };
      this.shared.set(memory, shared);
    }
    shared.holders += 1;
    return { ok: this.createRelease(memory, shared) };
  }

  private createRelease(memory: Uint8Array, shared: SharedReservation): () => void {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      shared.holders -= 1;
      if (shared.holders > 0) return;
      this.shared.delete(memory);
      shared.reservation.release();
    };
  }

  private add(key: string, change: number): ExceededLimit | undefined {
    const held = (this.byKey.get(key) ?? 0) + change;
    if (change > 0 && held > this.maxBytesPerKey) return 'key';
    if (change > 0 && this.bytes + change > this.maxBytes) return 'total';
    this.bytes += change;
    if (held > 0) this.byKey.set(key, held);
    else this.byKey.delete(key);
    return undefined;
  }
}

interface SharedReservation {
  readonly reservation: ByteReservation;
  holders: number;
}

/** The part of a `ByteBudget` that one request holds. */
export class ByteReservation {
  private held = 0;

  constructor(private readonly add: (change: number) => ExceededLimit | undefined) {}

  get bytes(): number {
    return this.held;
  }

  /** Holds this many bytes instead. Returns the limit that would exceed, and then changes nothing. */
  resize(bytes: number): ExceededLimit | undefined {
    const exceeded = this.add(bytes - this.held);
    if (exceeded === undefined) this.held = bytes;
    return exceeded;
  }

  /** May be called more than once. */
  release(): void {
    this.resize(0);
  }
}

/** The first chunks may have any size. */
const FREE_CHUNKS = 1000;
const MIN_AVERAGE_BYTES = 32;

/** Finds a body in tiny chunks: receiving one takes microseconds, and its sender spends six bytes. */
export class ChunkCounter {
  private chunks = 0;
  private bytes = 0;

  /** Counts a chunk; returns whether all chunks until now are too small on average. */
  add({ length }: Uint8Array): boolean {
    this.chunks += 1;
    this.bytes += length;
    return this.chunks > FREE_CHUNKS && this.bytes < this.chunks * MIN_AVERAGE_BYTES;
  }
}

/**
 * Reads a body to its end. `check` is called with each chunk and the length until now; the body is left unread from where
 * it throws. Reading by events takes half the time of an iterator.
 */
export function readChunks(
  body: Readable,
  check: (chunk: Buffer, length: number) => void,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const onData = (chunk: Buffer) => {
      length += chunk.length;
      chunks.push(chunk);
      try {
        check(chunk, length);
      } catch (error) {
        end();
        body.pause();
        reject(error);
      }
    };
    const stopWaiting = finished(body, { writable: false }, (error) => {
      const read = end();
      if (error) reject(error);
      else resolve(Buffer.concat(read, length));
    });
    /** The request may live much longer, so it must not refer to the chunks any more. */
    const end = (): Buffer[] => {
      body.off('data', onData);
      stopWaiting();
      return chunks.splice(0);
    };
    body.on('data', onData);
  });
}
