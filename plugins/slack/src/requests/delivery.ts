import { OracleError } from '@sibyl/plugin-kit';
import { z } from 'zod';

const Challenge = z.object({ type: z.literal('url_verification'), challenge: z.string() });

const SlackEvent = z.object({
  type: z.string(),
  subtype: z.string().optional(),
  user: z.string().optional(),
  bot_id: z.string().optional(),
  text: z.string().optional(),
  ts: z.string().optional(),
  thread_ts: z.string().optional(),
  channel: z.string().optional(),
  channel_type: z.string().optional(),
});
export type SlackEvent = z.infer<typeof SlackEvent>;

const EventCallback = z.object({
  type: z.literal('event_callback'),
  event_id: z.string().min(1).max(200),
  team_id: z.string().regex(/^[A-Z0-9]{1,40}$/i),
  authorizations: z
    .array(z.object({ user_id: z.string().optional(), is_bot: z.boolean().optional() }))
    .optional(),
  event: SlackEvent,
});
export type EventCallback = z.infer<typeof EventCallback>;

/** Kinds of deliveries that are of no use here, such as `app_rate_limited`. */
const Other = z.object({ type: z.string() });

/** What Slack delivers; `other` is acknowledged and left alone. */
export type Delivery =
  | { readonly kind: 'challenge'; readonly challenge: string }
  | { readonly kind: 'event'; readonly callback: EventCallback }
  | { readonly kind: 'other' };

/** Reads a delivery that has proven to be Slack's. */
export function readDelivery(body: Uint8Array): Delivery {
  const payload = parseJson(body);
  const challenge = Challenge.safeParse(payload);
  if (challenge.success) return { kind: 'challenge', challenge: challenge.data.challenge };
  const callback = EventCallback.safeParse(payload);
  if (callback.success) return { kind: 'event', callback: callback.data };
  if (Other.safeParse(payload).success) return { kind: 'other' };
  throw new OracleError('validation_failed', { message: ['type: must say what this is'] });
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body).toString('utf8'));
  } catch (cause) {
    throw new OracleError('invalid_json', { cause });
  }
}
