import { setTimeout as sleep } from 'node:timers/promises';

/** How many events a session gets, and how far apart. */
export interface Pulse {
  readonly count: number;
  readonly gapMs: number;
}

/** Now, on a clock that all processes of a machine share. */
export const now = (): number => performance.timeOrigin + performance.now();

/** Sends events at a steady rate, each with its number and the time it was sent. */
export async function sendPulse(
  { count, gapMs }: Pulse,
  send: (step: string) => void,
): Promise<void> {
  const start = performance.now();
  for (let n = 0; n < count; n++) {
    const wait = start + n * gapMs - performance.now();
    if (wait > 0) await sleep(wait);
    send(`${n} ${now()}`);
  }
}
