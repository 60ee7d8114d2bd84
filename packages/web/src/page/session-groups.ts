import type { Session } from '@sibyl/client';
import type { TextKey } from '../i18n/i18n.js';

export interface SessionGroup {
  readonly label: TextKey;
  readonly items: readonly Session[];
}

const DAY_MS = 86_400_000;

/** Pinned sessions first, then by the day of their last change. */
export function groupSessions(
  sessions: readonly Session[],
  pins: ReadonlySet<string>,
  now = new Date(),
): SessionGroup[] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const findLabel = ({ sessionId, lastUpdatedAt }: Session): TextKey => {
    if (pins.has(sessionId)) return 'chat.group.pinned';
    const at = Date.parse(lastUpdatedAt);
    if (at >= midnight) return 'chat.group.today';
    if (at >= midnight - DAY_MS) return 'chat.group.yesterday';
    return at >= midnight - 7 * DAY_MS ? 'chat.group.week' : 'chat.group.older';
  };
  const groups = Map.groupBy(sessions, findLabel);
  return ORDER.flatMap((label) => {
    const items = groups.get(label);
    return items ? [{ label, items }] : [];
  });
}

const ORDER = [
  'chat.group.pinned',
  'chat.group.today',
  'chat.group.yesterday',
  'chat.group.week',
  'chat.group.older',
] as const satisfies readonly TextKey[];
