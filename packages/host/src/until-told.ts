import { isRunByNpm } from './config/run-by-npm.js';

const STOP_SIGNALS = ['SIGTERM', 'SIGINT'] as const;
const LOOK_MS = 500;

const parent = process.ppid;

/** Waits for a first SIGTERM or Ctrl-C, or for npm to go; a second signal ends the process at once, as usual. */
export function untilTold(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      for (const signal of STOP_SIGNALS) process.off(signal, stop);
      clearInterval(watch);
      resolve();
    };
    // The shell that npm starts ends by a signal without passing it on.
    const watch = setInterval(() => {
      if (isRunByNpm() && process.ppid !== parent) stop();
    }, LOOK_MS).unref();
    for (const signal of STOP_SIGNALS) process.on(signal, stop);
  });
}
