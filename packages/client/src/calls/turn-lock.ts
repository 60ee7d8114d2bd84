/** The right to act for a turn: one tab of a browser has it at a time. */
export interface TurnLock {
  /** Resolves when this tab may act: at once, or when the one that could has gone. */
  readonly held: Promise<void>;
  release(): void;
}

/** Asks for the right to act for a turn; where tabs cannot agree, everybody has it. */
export function lockTurn(requestId: string): TurnLock {
  const locks = globalThis.navigator?.locks;
  if (!locks) return { held: Promise.resolve(), release: () => undefined };
  const leaving = new AbortController();
  const left = new Promise<void>((resolve) => {
    leaving.signal.addEventListener('abort', () => resolve());
  });
  const held = new Promise<void>((resolve) => {
    locks
      .request(`sibyl:${requestId}`, { signal: leaving.signal }, () => {
        resolve();
        return left;
      })
      // Left before it was given.
      .catch(() => undefined);
  });
  return { held, release: () => leaving.abort() };
}
