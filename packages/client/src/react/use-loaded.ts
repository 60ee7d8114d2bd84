import { useCallback, useEffect, useRef, useState } from 'react';
import { OracleClientError } from '../oracle-client-error.js';

/** What a hook has loaded, or why it could not. */
export interface Loaded {
  readonly isLoading: boolean;
  readonly error?: OracleClientError;
  refresh(): Promise<void>;
}

interface State<T> {
  readonly value: T | undefined;
  readonly error?: OracleClientError;
  readonly isLoading: boolean;
}

/** Loads something when mounted, and again when `load` is another; what comes too late is dropped. */
export function useLoaded<T>(
  load: (signal: AbortSignal) => Promise<T>,
): Loaded & { readonly value: T | undefined } {
  const [state, setState] = useState<State<T>>({ value: undefined, isLoading: true });
  const current = useRef(new AbortController());
  const refresh = useCallback(async () => {
    current.current.abort();
    current.current = new AbortController();
    const { signal } = current.current;
    const show = (loaded: Partial<State<T>>) => {
      if (!signal.aborted) setState(({ value }) => ({ value, isLoading: false, ...loaded }));
    };
    setState((before) => ({ ...before, isLoading: true }));
    try {
      show({ value: await load(signal) });
    } catch (error) {
      if (signal.aborted) return;
      // Errors of the client are shown; anything else is a fault of the page.
      if (!(error instanceof OracleClientError)) throw error;
      show({ error });
    }
  }, [load]);
  useEffect(() => {
    void refresh();
    return () => current.current.abort();
  }, [refresh]);
  return { ...state, refresh };
}
