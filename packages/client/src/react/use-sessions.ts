import type { Session, SessionPage } from '@sibyl/protocol';
import { useCallback, useState } from 'react';
import type { Sessions } from '../oracle-client.js';
import { useOracle } from './oracle-provider.js';
import { type Loaded, useLoaded } from './use-loaded.js';

/** The most the host gives at once. */
const PAGE_LIMIT = 100;

export interface UseSessions extends Loaded {
  /** Newest first, as far as loaded. */
  readonly sessions: readonly Session[];
  readonly total: number;
  readonly hasMore: boolean;
  loadMore(): Promise<void>;
  create(title?: string): Promise<Session>;
  rename(sessionId: string, title: string): Promise<void>;
  remove(sessionId: string): Promise<void>;
}

/** The user's sessions. */
export function useSessions({ pageSize = 20 }: { readonly pageSize?: number } = {}): UseSessions {
  const { sessions: routes } = useOracle();
  const [wanted, setWanted] = useState(pageSize);
  const load = useCallback(
    (signal: AbortSignal) => loadNewest(routes, wanted, signal),
    [routes, wanted],
  );
  const { value, ...loaded } = useLoaded(load);
  const { sessions = [], total = 0 } = value ?? {};
  const { refresh } = loaded;
  const create = useCallback(
    async (title?: string) => {
      const session = await routes.create(title === undefined ? {} : { title });
      await refresh();
      return session;
    },
    [routes, refresh],
  );
  const rename = useCallback(
    async (sessionId: string, title: string) => {
      await routes.rename(sessionId, title);
      await refresh();
    },
    [routes, refresh],
  );
  const remove = useCallback(
    async (sessionId: string) => {
      await routes.delete(sessionId);
      await refresh();
    },
    [routes, refresh],
  );
  const loadMore = useCallback(async () => setWanted((now) => now + pageSize), [pageSize]);
  const hasMore = sessions.length < total;
  return { sessions, total, hasMore, loadMore, create, rename, remove, ...loaded };
}

/** Always from the newest on: sessions move to the front while they are used. */
async function loadNewest(
  routes: Sessions,
  wanted: number,
  signal: AbortSignal,
): Promise<SessionPage> {
  const offsets = Array.from({ length: Math.ceil(wanted / PAGE_LIMIT) }, (_, i) => i * PAGE_LIMIT);
  const pages = await Promise.all(
    offsets.map((offset) =>
      routes.list({ offset, limit: Math.min(PAGE_LIMIT, wanted - offset), signal }),
    ),
  );
  const byId = new Map(
    pages.flatMap(({ sessions }) => sessions).map((session) => [session.sessionId, session]),
  );
  return { sessions: [...byId.values()], total: pages[0]?.total ?? 0 };
}
