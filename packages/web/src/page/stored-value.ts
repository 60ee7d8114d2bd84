import { useSyncExternalStore } from 'react';

/** What the browser has not stored, since its storage is full. */
const unstored = new Map<string, string>();
const watchers = new Set<() => void>();

/** Reads a text that was stored; null if there is none, or if the browser blocks its storage. */
export function readText(key: string): string | null {
  try {
    return unstored.get(key) ?? localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Stores a text, null removes it; one that cannot be stored lasts as long as the page. */
export function storeText(key: string, text: string | null): void {
  unstored.delete(key);
  try {
    if (text === null) localStorage.removeItem(key);
    else localStorage.setItem(key, text);
  } catch {
    if (text !== null) unstored.set(key, text);
  }
  notifyWatchers();
}

const notifyWatchers = () => {
  for (const watcher of watchers) watcher();
};
globalThis.addEventListener?.('storage', notifyWatchers);
globalThis.addEventListener?.('pageshow', ({ persisted }) => persisted && notifyWatchers());

/** Calls a function when this tab or another one has stored a text. */
export function watchTexts(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** What a function reads from stored texts, always the newest. */
export const useStored = <T>(read: () => T): T => useSyncExternalStore(watchTexts, read);

/** A value that survives a reload and is the same in all tabs. */
export interface StoredValue<T> {
  get(): T;
  /** Changes the newest value, also one that another tab has stored a moment ago. */
  update(change: (value: T) => T): void;
  subscribe(listener: () => void): () => void;
}

/** Keeps a JSON value in `localStorage`; changes that cannot be stored last as long as the page. */
export function createStoredValue<T>(key: string, initial: T): StoredValue<T> {
  const listeners = new Set<() => void>();
  let text: string | null = null;
  let value = initial;
  /** Changes that are not stored, since the browser's storage is full or disabled. */
  let pending: ((value: T) => T)[] = [];
  const read = () => {
    const stored = readText(key);
    if (stored === text) return;
    text = stored;
    value = pending.reduce((now, change) => change(now), parse(stored, initial));
  };
  const store = () => {
    const next = JSON.stringify(value);
    try {
      localStorage.setItem(key, next);
      text = next;
      pending = [];
    } catch {
      // Tried again with the next change.
    }
  };
  read();
  const notify = () => {
    for (const listener of listeners) listener();
  };
  const follow = () => {
    read();
    // The other tab may have made room.
    if (pending.length > 0) store();
    notify();
  };
  // Events come from other tabs only.
  globalThis.addEventListener?.('storage', (event) => {
    if (event.key === key || event.key === null) follow();
  });
  // A page that the browser has kept while the user was elsewhere has missed them.
  globalThis.addEventListener?.('pageshow', ({ persisted }) => persisted && follow());
  return {
    get: () => value,
    update: (change) => {
      // The event of another tab's change may not have arrived yet.
      read();
      value = change(value);
      pending.push(change);
      store();
      notify();
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

function parse<T>(text: string | null, initial: T): T {
  if (text === null) return initial;
  try {
    return JSON.parse(text);
  } catch {
    return initial;
  }
}
