import { z } from 'zod';
import type { EventCallback, SlackEvent } from './delivery.js';
import { plainText } from './plain-text.js';

/** Something a person said to the bot. */
export const SlackMessage = z.object({
  eventId: z.string(),
  team: z.string(),
  user: z.string(),
  channel: z.string(),
  /** When it was said; names the message in its channel. */
  ts: z.string(),
  /** The thread to answer in; none in a direct conversation outside of threads. */
  thread: z.string().optional(),
  text: z.string(),
});
export type SlackMessage = z.infer<typeof SlackMessage>;

/** Subtypes that are still somebody saying something. */
const SPOKEN = new Set([undefined, 'file_share', 'thread_broadcast']);

/** The message in an event; undefined for all that is not a person talking to the bot. */
export function messageOf(callback: EventCallback): SlackMessage | undefined {
  const { event, event_id: eventId, team_id: team } = callback;
  const { user, channel, ts } = event;
  if (!user || !channel || !ts || event.bot_id || !SPOKEN.has(event.subtype)) return undefined;
  const self = callback.authorizations?.find(({ is_bot }) => is_bot)?.user_id;
  if (user === self || !isAddressed(event)) return undefined;
  const text = plainText(event.text ?? '', self);
  if (!text) return undefined;
  const thread = event.thread_ts ?? (isDirect(event) ? undefined : ts);
  return { eventId, team, user, channel, ts, text, ...(thread && { thread }) };
}

function isAddressed(event: SlackEvent): boolean {
  return event.type === 'app_mention' || (event.type === 'message' && isDirect(event));
}

function isDirect({ channel_type }: SlackEvent): boolean {
  return channel_type === 'im';
}
