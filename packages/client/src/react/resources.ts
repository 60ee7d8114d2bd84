import type {
  Approval,
  DelegationStatus,
  SearchResult,
  Session,
  SessionPage,
  SessionsChangedEvent,
  UserPreferences,
} from '@sibyl/protocol';
import {
  type Dispatch,
  type SetStateAction,
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
} from 'react';
import type { Approvals } from '../approvals.js';
import type { Delegations, DelegationTerms } from '../delegations.js';
import { OracleClientError } from '../errors.js';
import type { Sessions } from '../sessions.js';
import { useOracle } from './oracle-provider.js';

export interface UseSessions extends Resource {
  /** The loaded sessions, newest first. */
  readonly sessions: readonly Session[];
  readonly total: number;
  readonly hasMore: boolean;
  loadMore(): Promise<void>;
  create(title?: string): Promise<Session>;
  rename(sessionId: string, title: string): Promise<void>;
  remove(sessionId: string): Promise<void>;
}

export interface UseSessionsOptions {
  readonly pageSize?: number;
  /** Called for every change, by any client of the user. */
  readonly onChange?: (event: SessionsChangedEvent) => void;
}

/** Lists and manages the user's sessions. */
export function useSessions({ pageSize = 20, onChange }: UseSessionsOptions = {}): UseSessions {
  const { sessions: routes } = useOracle();
  const list = useMemo(() => ({ routes, wanted: pageSize, known: NOTHING }), [routes, pageSize]);
  const load = useCallback((signal: AbortSignal) => loadWanted(list, signal), [list]);
  const { value, refresh: loadMissing, ...resource } = useResource(load);
  const { sessions, total } = value ?? NOTHING;
  const hasMore = sessions.length < total;
  const refresh = useCallback(() => {
    list.known = NOTHING;
    return loadMissing();
  }, [list, loadMissing]);
  useChanges(refresh, onChange);
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
  const loadMore = useCallback(async () => {
    if (!hasMore) return;
    list.wanted += pageSize;
    await loadMissing();
  }, [list, hasMore, pageSize, loadMissing]);
  return { sessions, total, hasMore, loadMore, create, rename, remove, refresh, ...resource };
}

/** Changes that arrive together cause one request. */
const REFRESH_DELAY_MS = 250;

/** Loads the list again when any client of the user has changed it. */
function useChanges(refresh: () => Promise<void>, onChange: UseSessionsOptions['onChange']): void {
  const { sessions } = useOracle();
  const latest = useRef({ refresh, onChange });
  useEffect(() => {
    latest.current = { refresh, onChange };
  });
  useEffect(() => {
    // Not on every platform.
    const page = globalThis.document as Document | undefined;
    let stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const watch = async () => {
      for await (const event of sessions.changes({ signal: stop.signal })) {
        latest.current.onChange?.(event);
        // Also for the first event: the list may have changed before the stream was connected.
        timer ??= setTimeout(reload, REFRESH_DELAY_MS);
      }
    };
    const reload = () => {
      timer = undefined;
      void latest.current.refresh();
    };
    // A hidden page keeps no stream open: over HTTP/1.1, six of them would use all connections to the host.
    const watchWhileVisible = () => {
      stop.abort();
      if (page?.visibilityState === 'hidden') return;
      stop = new AbortController();
      // A host that does not have this route.
      watch().catch(() => undefined);
    };
    watchWhileVisible();
    page?.addEventListener('visibilitychange', watchWhileVisible);
    return () => {
      page?.removeEventListener('visibilitychange', watchWhileVisible);
      stop.abort();
      clearTimeout(timer);
    };
  }, [sessions]);
}

export interface UseSearch extends Resource {
  readonly results: readonly SearchResult[];
  readonly hasMore: boolean;
}

/** Searches the user's messages and titles; finds nothing for a blank text. */
export function useSearch(
  text: string,
  { limit = 20 }: { readonly limit?: number } = {},
): UseSearch {
  const client = useOracle();
  const load = useCallback(
    async (signal: AbortSignal) =>
      text.trim() ? client.search(text, { limit, signal }) : undefined,
    [client, text, limit],
  );
  const { value, ...resource } = useResource(load);
  return { results: value?.results ?? [], hasMore: value?.hasMore ?? false, ...resource };
}

/** The server's page limit. */
const PAGE_LIMIT = 100;
const NOTHING: SessionPage = { sessions: [], total: 0 };

interface LoadedSessions {
  readonly routes: Sessions;
  wanted: number;
  /** The newest ones, as far as they need not be loaded again. */
  known: SessionPage;
}

/** Loads what is missing, or everything if sessions have moved since, as they do when they are used. */
async function loadWanted(list: LoadedSessions, signal: AbortSignal): Promise<SessionPage> {
  const { routes, wanted, known } = list;
  const { length: start } = known.sessions;
  const count = Math.ceil((wanted - start) / PAGE_LIMIT);
  const loadPage = (_: unknown, index: number) => {
    const offset = start + index * PAGE_LIMIT;
    return routes.list({ offset, limit: Math.min(PAGE_LIMIT, wanted - offset), signal });
  };
  const pages = await Promise.all(Array.from({ length: count }, loadPage));
  const all = [known, ...pages].flatMap(({ sessions }) => sessions);
  const sessions = [...new Map(all.map((each) => [each.sessionId, each])).values()];
  const total = pages[0]?.total ?? 0;
  const hasMoved = sessions.length < all.length || total !== known.total;
  if (signal.aborted) return known;
  list.known = start > 0 && hasMoved ? NOTHING : { sessions, total };
  return list.known === NOTHING ? loadWanted(list, signal) : list.known;
}

export interface UseDelegation extends Resource {
  readonly status: DelegationStatus | undefined;
  readonly grant: Delegations['grant'];
  readonly revoke: Delegations['revoke'];
}

/** Grants and revokes delegations to the oracle. */
export function useDelegation(): UseDelegation {
  const { delegation } = useOracle();
  const load = useCallback((signal: AbortSignal) => delegation.status({ signal }), [delegation]);
  const { value: status, ...resource } = useResource(load);
  const { refresh } = resource;
  const grant = useCallback(
    async (terms: DelegationTerms) => {
      const stored = await delegation.grant(terms);
      await refresh();
      return stored;
    },
    [delegation, refresh],
  );
  const revoke = useCallback(
    async (cid?: string) => {
      const stopped = await delegation.revoke(cid);
      await refresh();
      return stopped;
    },
    [delegation, refresh],
  );
  return { status, grant, revoke, ...resource };
}

export interface UsePreferences extends Resource {
  readonly preferences: UserPreferences;
}

/** Reads the user's preferences, which change through messages in a chat. */
export function usePreferences(): UsePreferences {
  const client = useOracle();
  const load = useCallback((signal: AbortSignal) => client.preferences.get({ signal }), [client]);
  const { value: preferences = {}, ...resource } = useResource(load);
  return { preferences, ...resource };
}

export interface UseApprovals extends Resource {
  /** The tool calls that wait for the user, oldest first. */
  readonly approvals: readonly Approval[];
  readonly approve: Approvals['approve'];
  readonly deny: Approvals['deny'];
}

/** Lists the tool calls that wait for the user, of one session or all, and decides them. */
export function useApprovals({ sessionId }: { readonly sessionId?: string } = {}): UseApprovals {
  const { approvals: routes } = useOracle();
  const load = useCallback(
    (signal: AbortSignal) => routes.list({ signal, ...(sessionId !== undefined && { sessionId }) }),
    [routes, sessionId],
  );
  const { value: approvals = [], ...resource } = useResource(load);
  const { refresh } = resource;
  const approve = useCallback<Approvals['approve']>(
    async (...decision) => routes.approve(...decision).finally(refresh),
    [routes, refresh],
  );
  const deny = useCallback<Approvals['deny']>(
    async (...decision) => routes.deny(...decision).finally(refresh),
    [routes, refresh],
  );
  return { approvals, approve, deny, ...resource };
}

/** The loading state of a hook. */
export interface Resource {
  readonly isLoading: boolean;
  readonly error?: OracleClientError;
  refresh(): Promise<void>;
}

interface State<T> {
  readonly value: T | undefined;
  readonly error?: OracleClientError;
  readonly isLoading: boolean;
}

/** Loads a value on mount and when `load` changes; outdated results are dropped. */
export function useResource<T>(
  load: (signal: AbortSignal) => Promise<T>,
): Resource & { readonly value: T | undefined } {
  const [state, setState] = useState<State<T>>({ value: undefined, isLoading: true });
  const latest = useRef({ stop: new AbortController(), shown: Promise.resolve() });
  const refresh = useCallback((): Promise<void> => {
    latest.current.stop.abort();
    const stop = new AbortController();
    const shown: Promise<void> = loadAndShow(load, stop.signal, setState).then(() => {
      // Another refresh has replaced this one: the value is shown when that one ends.
      const newest = latest.current.shown;
      return newest === shown ? undefined : newest;
    });
    latest.current = { stop, shown };
    return shown;
  }, [load]);
  useEffect(() => {
    void refresh();
    return () => latest.current.stop.abort();
  }, [refresh]);
  return { ...state, refresh };
}

async function loadAndShow<T>(
  load: (signal: AbortSignal) => Promise<T>,
  signal: AbortSignal,
  setState: Dispatch<SetStateAction<State<T>>>,
): Promise<void> {
  const show = (loaded: Partial<State<T>>) => {
    if (!signal.aborted) setState(({ value }) => ({ value, isLoading: false, ...loaded }));
  };
  setState((before) => ({ ...before, isLoading: true }));
  try {
    show({ value: await load(signal) });
  } catch (error) {
    if (signal.aborted) return;
    // Other errors are bugs in the page.
    if (!(error instanceof OracleClientError)) throw error;
    show({ error });
  }
}
