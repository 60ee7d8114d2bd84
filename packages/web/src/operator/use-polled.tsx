import { type ReactNode, useCallback, useEffect, useState } from 'react';
import { t } from '../i18n/i18n.js';

/** For most lists; charts change slowly. */
const INTERVAL_MS = 5_000;

interface Polled<T> {
  readonly value: T | undefined;
  readonly error: string | undefined;
  readonly reload: () => void;
}

/** Reads something now and every few seconds while the page is visible. `read` must be stable. */
export function usePolled<T>(
  read: (signal: AbortSignal) => Promise<T>,
  intervalMs = INTERVAL_MS,
): Polled<T> {
  const [value, setValue] = useState<T>();
  const [error, setError] = useState<string>();
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((last) => last + 1), []);
  useEffect(() => {
    const stop = new AbortController();
    const load = async () => {
      if (document.hidden) return;
      try {
        setValue(await read(stop.signal));
        setError(undefined);
      } catch (cause) {
        if (!stop.signal.aborted) setError((cause as Error).message);
      }
    };
    void load();
    const timer = setInterval(load, intervalMs);
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [read, round, intervalMs]);
  return { value, error, reload };
}

interface LoadedProps<T> {
  readonly polled: Polled<T>;
  readonly children: (value: T) => ReactNode;
}

/** Shows the last known value, and says so if it cannot be read again. */
export function Loaded<T>({ polled: { value, error }, children }: LoadedProps<T>) {
  return (
    <>
      {error && (
        <p className="notice is-fault" role="alert">
          {t('operator.unreadable', { error })}
        </p>
      )}
      {value === undefined
        ? !error && <p className="empty">{t('chat.loading')}</p>
        : children(value)}
    </>
  );
}
