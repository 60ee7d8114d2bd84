import type { SessionsChangedEvent } from '@sibyl/client';
import { createContext, use, useEffect, useMemo, useRef } from 'react';

type Listener = (event: SessionsChangedEvent) => void;

/** Passes changes of the user's sessions, by any client, to the parts of the page. */
export interface SessionChanges {
  notify: Listener;
  subscribe(listener: Listener): () => void;
}

export const SessionChangesContext = createContext<SessionChanges | undefined>(undefined);

export function useCreateSessionChanges(): SessionChanges {
  return useMemo(() => {
    const listeners = new Set<Listener>();
    return {
      notify: (event) => {
        for (const listener of listeners) listener(event);
      },
      subscribe: (listener) => {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
    };
  }, []);
}

/** Calls the newest listener for every change. */
export function useSessionChanges(listener: Listener): void {
  const changes = use(SessionChangesContext);
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => changes?.subscribe((event) => latest.current(event)), [changes]);
}
