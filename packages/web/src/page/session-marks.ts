import { useEffect, useSyncExternalStore } from 'react';
import { createStoredValue } from './stored-value.js';

const pins = createStoredValue<readonly string[]>('sibyl-pins', []);

/** The sessions that the user has pinned in this browser. */
export function usePins() {
  const list = useSyncExternalStore(pins.subscribe, pins.get);
  const togglePin = (sessionId: string) =>
    pins.set(
      list.includes(sessionId) ? list.filter((each) => each !== sessionId) : [...list, sessionId],
    );
  return { pins: new Set(list), togglePin };
}

interface Deletion {
  readonly sessionId: string;
  /** Unix milliseconds, after which it cannot be undone. */
  readonly at: number;
}

const UNDO_MS = 10_000;
const deletions = createStoredValue<readonly Deletion[]>('sibyl-deletions', []);

/** Hides a session and deletes it in ten seconds; returns a function that prevents it. */
export function deleteLater(sessionId: string): () => void {
  deletions.set([...deletions.get(), { sessionId, at: Date.now() + UNDO_MS }]);
  return () => forget(sessionId);
}

const forget = (sessionId: string) =>
  deletions.set(deletions.get().filter((each) => each.sessionId !== sessionId));

/** Deletes sessions whose time has come, also those of a page that was closed before; returns the hidden ones. */
export function useDeletions(remove: (sessionId: string) => Promise<void>): ReadonlySet<string> {
  const list = useSyncExternalStore(deletions.subscribe, deletions.get);
  useEffect(() => {
    const next = list[0];
    if (!next) return;
    const run = () =>
      remove(next.sessionId).then(
        () => forget(next.sessionId),
        // It shows up again, with the reason beside the list.
        () => forget(next.sessionId),
      );
    const timer = setTimeout(run, Math.max(0, next.at - Date.now()));
    return () => clearTimeout(timer);
  }, [list, remove]);
  return new Set(list.map(({ sessionId }) => sessionId));
}
