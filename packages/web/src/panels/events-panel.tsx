import type { ServerEvent } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';

const MAX_EVENTS = 200;

interface SeenEvent {
  readonly id: number;
  readonly time: string;
  readonly event: ServerEvent;
}

/** The session's socket events, for developers. */
export function EventsPanel({ sessionId }: { readonly sessionId: string | undefined }) {
  const client = useOracle();
  const [seen, setSeen] = useState<readonly SeenEvent[]>([]);
  useEffect(() => {
    if (!sessionId) return;
    let id = 0;
    const events = client.events(sessionId);
    const stop = events.onAny((event) => {
      id += 1;
      const entry = { id, time: new Date().toLocaleTimeString(), event };
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
      <p className="quiet">Live events of this conversation, for developers.</p>
      <ol className="events" aria-label="Events">
        {seen.map(({ id, time, event }) => (
          <li key={id}>
            <details>
              <summary>
                <time>{time}</time> <code>{event.name}</code>
              </summary>
              <pre>{JSON.stringify(event.payload, null, 2)}</pre>
            </details>
          </li>
        ))}
      </ol>
      {seen.length === 0 && <p>No events yet.</p>}
    </>
  );
}
