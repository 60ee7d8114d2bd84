import { useEffect, useState } from 'react';

const read = () => /^#\/s\/([\w-]+)$/.exec(location.hash)?.[1];

/** The session the address names, and how to go to another. */
export function useSessionId(): readonly [string | undefined, (sessionId?: string) => void] {
  const [sessionId, setSessionId] = useState(read);
  useEffect(() => {
    const follow = () => setSessionId(read());
    window.addEventListener('hashchange', follow);
    return () => window.removeEventListener('hashchange', follow);
  }, []);
  const go = (next?: string) => {
    location.hash = next ? `#/s/${next}` : '#/';
  };
  return [sessionId, go];
}
