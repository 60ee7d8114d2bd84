import type { ServerEvent } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { formatTime, showReordering } from '../i18n/format.js';
import { t } from '../i18n/i18n.js';

const MAX_EVENTS = 200;

interface SeenEvent {
  readonly id: number;
  readonly time: string;
  readonly event: ServerEvent;
}

/** The session's socket events, for developers. */
export function EventsPanel({ sessionId }: { readonly sessionId: string }) {
  const client = useOracle();
  const [seen, setSeen] = useState<readonly SeenEvent[]>([]);
  useEffect(() => {
    let id = 0;
    const events = client.events(sessionId);
    const stop = events.onAny((event) => {
      id += 1;
      const entry = { id, time: formatTime(Date.now(), 'medium'), event };
      setSeen((before) => [...before.slice(1 - MAX_EVENTS), entry]);
    });
    events.emit('status');
    return () => {
      stop();
      events.close();
    };
  }, [client, sessionId]);
  return (
    <>
      <ol className="events" dir="ltr" aria-label={t('chat.events')}>
        {seen.map(({ id, time, event }) => (
          <li key={id}>
            <details>
              <summary>
                <time>{time}</time> <code>{event.name}</code>
              </summary>
              <pre>{showReordering(JSON.stringify(event.payload, null, 2))}</pre>
            </details>
          </li>
        ))}
      </ol>
      {seen.length === 0 && <p>{t('chat.loading')}</p>}
    </>
  );
}
