/** The other pages of this browser that show the same session. */
export interface OtherTabs {
  /** Tells them that a turn has begun here. */
  tell(): void;
  close(): void;
}

/** Calls back when another page of this browser has begun a turn in the session. */
export function joinTabs(sessionId: string, onTurn: () => void): OtherTabs {
  if (typeof BroadcastChannel === 'undefined') {
    return { tell: () => undefined, close: () => undefined };
  }
  const channel = new BroadcastChannel(`sibyl:${sessionId}`);
  channel.onmessage = onTurn;
  // In Node, where it would keep the process from ending.
  (channel as { unref?: () => void }).unref?.();
  return { tell: () => channel.postMessage('turn'), close: () => channel.close() };
}
