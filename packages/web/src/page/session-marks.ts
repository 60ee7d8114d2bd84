import type { OracleClient, OracleClientError, Session } from '@sibyl/client';
import { type UseSessions, useOracle } from '@sibyl/client/react';
import { useEffect, useMemo, useState, useSyncExternalStore } from 'react';
import { nowMs } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';
import type { SessionChanges } from './page-context.js';
import { createStoredValue, type StoredValue } from './stored-value.js';

/** What the server calls a session until it has a title. */
const UNTITLED = 'Untitled';

/** The title of a session, in the language of the user while it has none. */
export const nameSession = ({ title }: Pick<Session, 'title'>): string =>
  title === UNTITLED ? t('chat.untitled') : title;

type Pins = StoredValue<readonly string[]>;

/** Calls a function once for each identity of this browser. */
function forEachUser<T>(create: (did: string) => T): (did: string) => T {
  const known = new Map<string, T>();
  return (did) => {
    const value = known.get(did) ?? create(did);
    known.set(did, value);
    return value;
  };
}

const openPins = forEachUser((did): Pins => {
  // All identities of a browser had the same.
  const former: Pins = createStoredValue('sibyl-pins', []);
  return createStoredValue(`sibyl-pins:${did}`, former.get());
});

/** The sessions that the user has pinned in this browser. */
export function usePins() {
  const pins = openPins(useOracle().did);
  const list = useSyncExternalStore(pins.subscribe, pins.get);
  const togglePin = (sessionId: string) =>
    pins.update((now) =>
      now.includes(sessionId) ? now.filter((each) => each !== sessionId) : [...now, sessionId],
    );
  return { pins: new Set(list), togglePin };
}

/** The loaded sessions with those that the page also shows: the current one and the pinned ones, however old they are. */
export function useShownSessions(
  { sessions, hasMore }: UseSessions,
  current: string | undefined,
  changes: SessionChanges,
): readonly Session[] {
  const client = useOracle();
  const pins = openPins(client.did);
  const pinned = useSyncExternalStore(pins.subscribe, pins.get);
  const [found, setFound] = useState<readonly Session[]>([]);
  const [round, setRound] = useState(0);
  const missing = useMemo(() => {
    const loaded = new Set(sessions.map(({ sessionId }) => sessionId));
    const shown = hasMore ? [...pinned, ...(current ? [current] : [])] : [];
    return [...new Set(shown)].filter((each) => !loaded.has(each)).join(' ');
  }, [sessions, hasMore, pinned, current]);
  useEffect(() => {
    if (!missing) return;
    const stop = new AbortController();
    // Without them, the list is shown as it is.
    findOlder(client, missing.split(' '), stop.signal).then(setFound, () => undefined);
    return () => stop.abort();
  }, [client, missing, round]);
  useEffect(
    () =>
      changes.subscribe(({ change, sessionId }) => {
        if (change === 'deleted') {
          setFound((all) => all.filter((each) => each.sessionId !== sessionId));
          // Otherwise it would be searched with every visit.
          if (pins.get().includes(sessionId ?? ''))
            pins.update((all) => all.filter((each) => each !== sessionId));
        }
        if (change === 'renamed' || change === 'reload') setRound((now) => now + 1);
      }),
    [changes, pins],
  );
  return useMemo(() => {
    const ids = new Set(missing.split(' '));
    const older = found.filter(({ sessionId }) => ids.has(sessionId));
    return older.length > 0 ? [...sessions, ...older] : sessions;
  }, [sessions, found, missing]);
}

/** The server's limit of a page. */
const PAGE_SIZE = 100;

/** Looks for sessions page by page, as long as some are missing. */
async function findOlder(
  client: OracleClient,
  ids: readonly string[],
  signal: AbortSignal,
): Promise<readonly Session[]> {
  const found = new Map<string, Session>();
  for (let offset = 0; found.size < ids.length; offset += PAGE_SIZE) {
    const { sessions, total } = await client.sessions.list({ limit: PAGE_SIZE, offset, signal });
    for (const each of sessions) if (ids.includes(each.sessionId)) found.set(each.sessionId, each);
    if (offset + PAGE_SIZE >= total) break;
  }
  return [...found.values()];
}

interface Deletion {
  readonly sessionId: string;
  /** Whose session it is: only they can delete it. */
  readonly did: string;
  /** Unix milliseconds of the next attempt; before the first one, it can be undone. */
  readonly at: number;
}

const UNDO_MS = 10_000;
const RETRY_MS = 60_000;
const deletions = createStoredValue<readonly Deletion[]>('sibyl-deletions', []);

/** Hides a session of a user and deletes it in ten seconds, unless `keepSession` prevents it. */
export const deleteLater = (did: string, sessionId: string): void =>
  deletions.update((all) => [...all, { sessionId, did, at: Date.now() + UNDO_MS }]);

/** Prevents that a session is deleted: the user wants it back, or writes to it in another tab. */
export function keepSession(sessionId: string): void {
  if (deletions.get().some((each) => each.sessionId === sessionId)) replace(sessionId);
}

/** Forgets a deletion, or puts another one in its place. */
const replace = (sessionId: string, ...again: readonly Deletion[]) =>
  deletions.update((all) => [...all.filter((each) => each.sessionId !== sessionId), ...again]);

/** Deletes a user's sessions whose time has come, also those of a page that was closed before; returns the hidden ones. */
export function useDeletions(
  did: string,
  remove: (sessionId: string) => Promise<void>,
): ReadonlySet<string> {
  const list = useSyncExternalStore(deletions.subscribe, deletions.get);
  useEffect(() => {
    const run = async (deletion: Deletion) => {
      const { sessionId } = deletion;
      // First, so that it is not tried twice at a time, and is tried again later if it fails.
      replace(sessionId, { ...deletion, at: Date.now() + RETRY_MS });
      try {
        await remove(sessionId);
      } catch (error) {
        const isGone = (error as OracleClientError).status === 404;
        if (!isGone) return;
      }
      replace(sessionId);
    };
    const timers = list
      .filter((each) => each.did === did)
      // No later, also if the clock was set back.
      .map((each) => setTimeout(run, Math.min(Math.max(0, each.at - Date.now()), RETRY_MS), each));
    return () => timers.forEach(clearTimeout);
  }, [list, did, remove]);
  return new Set(list.map(({ sessionId }) => sessionId));
}

/** The last answer that the user has seen in this browser, by session; `since` is when this began. */
interface Seen {
  readonly since: string;
  readonly answers: Readonly<Record<string, string>>;
}

const MAX_SEEN = 500;
type SeenStore = StoredValue<Seen | null>;

const openSeen = forEachUser(
  (did): SeenStore => createStoredValue<Seen | null>(`sibyl-seen:${did}`, null),
);

/** What a session needs from the user, or has for the user. */
export type SessionMark = 'paused' | 'running' | 'unseen';

/** Returns the mark of a session; remembers that the user sees the current one. */
export function useSessionMarks(
  sessions: readonly Session[],
  current: string | undefined,
): (session: Session) => SessionMark | undefined {
  const seen = openSeen(useOracle().did);
  const stored = useSyncExternalStore(seen.subscribe, seen.get);
  const isVisible = useVisible();
  useEffect(() => {
    if (sessions.length === 0) return;
    const open = sessions.filter(({ sessionId }) => sessionId === current && isVisible);
    // What was there before is not news.
    markSeen(seen, seen.get() ? open : sessions);
  }, [seen, sessions, current, isVisible]);
  return (session) => {
    const { sessionId, turnStatus, needsUser } = session;
    // Others wait for a program.
    if (turnStatus === 'paused') return needsUser ? turnStatus : undefined;
    return (
      turnStatus ?? (isUnseen(session, stored) && sessionId !== current ? 'unseen' : undefined)
    );
  };
}

function isUnseen(
  { sessionId, activeMessageId, lastUpdatedAt }: Session,
  stored: Seen | null,
): boolean {
  if (!stored || !activeMessageId) return false;
  const known = stored.answers[sessionId];
  return known === undefined ? lastUpdatedAt > stored.since : known !== activeMessageId;
}

/** An answer that is still being written is not seen yet. */
function markSeen(seen: SeenStore, sessions: readonly Session[]): void {
  const now = sessions.flatMap(({ sessionId, activeMessageId, turnStatus }) =>
    activeMessageId && !turnStatus ? [[sessionId, activeMessageId] as const] : [],
  );
  const known = seen.get()?.answers;
  if (known && now.every(([id, answer]) => known[id] === answer)) return;
  const ids = new Set(now.map(([id]) => id));
  seen.update((stored) => {
    const { since, answers } = stored ?? { since: new Date(nowMs()).toISOString(), answers: {} };
    const others = Object.entries(answers).filter(([id]) => !ids.has(id));
    return { since, answers: Object.fromEntries([...others, ...now].slice(-MAX_SEEN)) };
  });
}

const subscribeVisible = (listener: () => void) => {
  document.addEventListener('visibilitychange', listener);
  return () => document.removeEventListener('visibilitychange', listener);
};

const useVisible = (): boolean =>
  useSyncExternalStore(subscribeVisible, () => document.visibilityState === 'visible');
