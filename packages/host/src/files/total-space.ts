import { OracleError } from '@sibyl/protocol';
import { oncePerSecond } from '../store/disk-space.js';

const RETRY_SECONDS = 60;

/** The space of all files of all users, which FILES_MAX limits. */
export class TotalSpace {
  private readonly reservations = new Set<TotalReservation>();
  private readonly sum: () => Promise<number>;

  /** `sum` returns the bytes of all files, without uploads to this host, which count by what they have reserved. */
  constructor(
    private readonly maxBytes: number | undefined,
    sum: () => Promise<number>,
  ) {
    this.sum = oncePerSecond(async () => {
      const askedAt = performance.now();
      const bytes = await sum();
      // The sum contains them.
      for (const reservation of this.reservations)
        if (reservation.endedAt < askedAt) this.reservations.delete(reservation);
      return bytes;
    });
  }

  /** Throws if these bytes do not fit beside what others have reserved; unknown ones are reserved as they arrive. */
  async reserve(bytes = 0): Promise<TotalReservation> {
    const all = this.maxBytes === undefined ? new Set<TotalReservation>() : this.reservations;
    const reservation = new TotalReservation(bytes, all, (own) => this.assertFit(own));
    try {
      await this.assertFit(reservation);
      return reservation;
    } catch (error) {
      reservation.release(0);
      throw error;
    }
  }

  /** Of several that do not fit together, the first comes first. */
  private async assertFit(own: TotalReservation): Promise<void> {
    const { maxBytes } = this;
    if (maxBytes === undefined) return;
    const stored = await this.sum();
    if (stored + this.countReserved(own) <= maxBytes) return;
    throw new OracleError('files_full', { retryAfterSeconds: RETRY_SECONDS });
  }

  /** Bytes of a reservation, those before it, and files that were stored since the last sum. */
  private countReserved(own: TotalReservation): number {
    let sum = 0;
    let isAfter = false;
    for (const reservation of this.reservations) {
      if (!isAfter || reservation.endedAt < Number.POSITIVE_INFINITY) sum += reservation.bytes;
      isAfter ||= reservation === own;
    }
    return sum;
  }
}

/** Bytes of one file that is being stored. */
export class TotalReservation {
  endedAt = Number.POSITIVE_INFINITY;

  constructor(
    public bytes: number,
    private readonly all: Set<TotalReservation>,
    private readonly assertFit: (own: TotalReservation) => Promise<void>,
  ) {
    all.add(this);
  }

  /** Called before `size` bytes are stored in all; throws if more than was reserved does not fit. */
  async cover(size: number): Promise<void> {
    if (size <= this.bytes) return;
    this.bytes = size;
    await this.assertFit(this);
  }

  /** Ends the upload with so many bytes that stay. */
  release(stored: number): void {
    this.bytes = stored;
    this.endedAt = performance.now();
    if (stored === 0) this.all.delete(this);
  }
}
