import type { ServerEvent } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';

const MAX_EVENTS = 200;

interface SeenEvent {
  readonly at: number;
  readonly time: string;
  readonly event: ServerEvent;
}

/** For developers: what the socket brings, as it comes. */
export function EventsPanel({ sessionId }: { readonly sessionId: string | undefined }) {
  const client = useOracle();
  const [seen, setSeen] = useState<readonly SeenEvent[]>([]);
  useEffect(() => {
    if (!sessionId) return;
    let at = 0;
    const events = client.events(sessionId);
    const stop = events.onAny((event) => {
      at += 1;
      const entry = { at, time: new Date().toLocaleTimeString(), event };
      setSeen((before) => [...before.slice(1 - MAX_EVENTS), entry]);
    });
    events.emit('status');
    return () => {
      stop();
      events.close();
    };
  }, [client, sessionId]);
  if (!sessionId) return <p>Open a conversation first.</p>;
  return (
    <>
      <p className="quiet">What the socket of this conversation brings, as it comes.</p>
      <ol className="events" aria-label="Events">
        {seen.map(({ at, time, event }) => (
          <li key={at}>
            <details>
              <summary>
                <time>{time}</time> <code>{event.name}</code>
              </summary>
              <pre>{JSON.stringify(event.payload, null, 2)}</pre>
            </details>
          </li>
        ))}
      </ol>
      {seen.length === 0 && <p>Nothing yet.</p>}
    </>
  );
}
