import { randomBytes } from 'node:crypto';

const COUNTER_MAX = 0xfff;

/**
 * Creates UUIDs of version 7 that sort by creation, also within one millisecond and if the clock stops or goes back.
 */
export function createIdSource(clock: () => number): () => string {
  let time = 0;
  let counter = 0;
  return () => {
    const now = clock();
    if (now > time) {
      time = now;
      // A random start, so that ids of one millisecond cannot be guessed from each other.
      counter = randomBytes(2).readUInt16BE() & (COUNTER_MAX >> 1);
    } else if (counter < COUNTER_MAX) {
      counter += 1;
    } else {
      time += 1;
      counter = 0;
    }
    return format(time, counter);
  };
}

function format(time: number, counter: number): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(time, 0, 6);
  bytes.writeUInt16BE(0x7000 | counter, 6);
  bytes.writeUInt8(0x80 | (bytes.readUInt8(8) & 0x3f), 8);
  const hex = bytes.toString('hex');
  return [
    hex.slice(0, 8),
    hex.slice(8, 12),
    hex.slice(12, 16),
    hex.slice(16, 20),
    hex.slice(20),
  ].join('-');
}
