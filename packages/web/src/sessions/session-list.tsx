import type { UseSessions } from '@sibyl/client/react';
import { useEffect, useRef, useState } from 'react';
import { SessionRow } from './session-row.js';

interface SessionListProps {
  readonly sessions: UseSessions;
  readonly current: string | undefined;
  readonly onShow: (sessionId?: string) => void;
}

/** The caller's sessions, newest first; more are loaded when the end comes into view. */
export function SessionList({ sessions, current, onShow }: SessionListProps) {
  const end = useRef<HTMLLIElement>(null);
  const { hasMore, isLoading, loadMore } = sessions;
  useEffect(() => {
    if (!end.current || !hasMore || isLoading) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) void loadMore();
    });
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [hasMore, isLoading, loadMore]);

  const [fault, setFault] = useState<string>();
  const attempt = (work: Promise<void>) => {
    setFault(undefined);
    return work.catch(({ message }: Error) => setFault(message));
  };
  const remove = async (sessionId: string) => {
    await sessions.remove(sessionId);
    if (sessionId === current) onShow();
  };
  return (
    <ul className="sessions">
      {sessions.sessions.map((session) => (
        <SessionRow
          key={session.sessionId}
          session={session}
          isCurrent={session.sessionId === current}
          onShow={() => onShow(session.sessionId)}
          onRename={(title) => attempt(sessions.rename(session.sessionId, title))}
          onRemove={() => attempt(remove(session.sessionId))}
        />
      ))}
      {hasMore && (
        <li ref={end} className="quiet">
          Loading…
        </li>
      )}
      {!isLoading && sessions.total === 0 && <li className="quiet">Nothing here yet</li>}
      {(fault ?? sessions.error) && (
        <li className="fault" role="alert">
          {fault ?? sessions.error?.message}
        </li>
      )}
    </ul>
  );
}
