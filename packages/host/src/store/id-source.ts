import { randomInt, randomUUID } from 'node:crypto';

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
      counter = randomInt((COUNTER_MAX >> 1) + 1);
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
  const hex = time.toString(16).padStart(12, '0');
  const count = counter.toString(16).padStart(3, '0');
  // The variant and the random bits are the same in version 4, which Node creates from a pool of random bytes.
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7${count}-${randomUUID().slice(19)}`;
}
