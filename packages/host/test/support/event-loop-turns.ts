import { onTestFinished } from 'vitest';

/** Returns how many turns of the event loop other work has had since then. */
export function countEventLoopTurns(): () => number {
  let turns = 0;
  let isDone = false;
  const count = () => {
    turns += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  onTestFinished(() => {
    isDone = true;
  });
  return () => turns;
}
