// Fails a test file of the fast project that leaves globals changed: the next file in the same worker would run with them.
import { afterAll, expect, vi } from 'vitest';

const readGlobals = () => ({
  setTimeout,
  clearTimeout,
  setInterval,
  clearInterval,
  setImmediate,
  queueMicrotask,
  Date,
  fetch,
});

const readState = () => ({
  ...readGlobals(),
  window: 'window' in globalThis,
  'performance.now': performance.now,
  'process.exit': process.exit,
  'process.env': JSON.stringify(process.env, (key, value) =>
    // Vitest numbers its workers there.
    key.startsWith('VITEST_') ? undefined : value,
  ),
});

const worker: { sibylOriginal?: ReturnType<typeof readState> } = globalThis as object;
worker.sibylOriginal ??= readState();
const original = worker.sibylOriginal;

afterAll(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  const state = readState();
  const changed = Object.keys(original).filter(
    (name) => state[name as keyof typeof state] !== original[name as keyof typeof state],
  );
  for (const name of Object.keys(readGlobals()))
    Object.assign(globalThis, { [name]: original[name as keyof typeof original] });
  expect(changed, 'globals that this file leaves changed').toEqual([]);
});
