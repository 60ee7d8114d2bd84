import { createHmac, timingSafeEqual } from 'node:crypto';
import { OracleError } from '@sibyl/plugin-kit';
import { z } from 'zod';
import { type Interaction, readCommand, readInteraction } from './interactions.js';

const Challenge = z.object({ type: z.literal('url_verification'), challenge: z.string() });

/** A file that Slack holds; the bot's token opens its address. */
export const SlackFile = z.object({
  name: z.string().min(1).max(255).catch('file'),
  mimetype: z.string().min(1).max(255).catch('application/octet-stream'),
  size: z.int().min(0).optional().catch(undefined),
  url_private_download: z.url().max(2000),
});
export type SlackFile = z.infer<typeof SlackFile>;

/** Files in a message that are read; those without an address, such as deleted ones, are left out. */
const MAX_FILES = 10;
const SlackFiles = z.array(z.unknown()).transform((files) =>
  files
    .map((file) => SlackFile.safeParse(file).data)
    .filter((file) => file !== undefined)
    .slice(0, MAX_FILES),
);

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
  files: SlackFiles.optional(),
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

/** Deliveries without a use here, such as `app_rate_limited`. */
const Other = z.object({ type: z.string() });

/** A delivery of Slack; `other` is acknowledged and ignored. */
export type Delivery =
  | { readonly kind: 'challenge'; readonly challenge: string }
  | { readonly kind: 'event'; readonly callback: EventCallback }
  | Interaction
  | { readonly kind: 'other' };

/** Parses a delivery whose signature is verified: JSON for events, a form for commands, buttons and modals. */
export function readDelivery(body: Uint8Array, contentType = 'application/json'): Delivery {
  if (!contentType.toLowerCase().startsWith('application/x-www-form-urlencoded'))
    return readEvent(parseJson(body));
  const fields = Object.fromEntries(new URLSearchParams(Buffer.from(body).toString('utf8')));
  const { payload } = fields;
  return payload === undefined
    ? readFields(fields)
    : (readInteraction(parseJson(Buffer.from(payload))) ?? { kind: 'other' });
}

/** Reads the payload of an event. */
export function readEvent(payload: unknown): Delivery {
  const challenge = Challenge.safeParse(payload);
  if (challenge.success) return { kind: 'challenge', challenge: challenge.data.challenge };
  const callback = EventCallback.safeParse(payload);
  if (callback.success) return { kind: 'event', callback: callback.data };
  if (Other.safeParse(payload).success) return { kind: 'other' };
  throw new OracleError('validation_failed', { message: ['type: is missing'] });
}

/** Reads the fields of a slash command. Slack sends `ssl_check` to see whether the address works. */
export function readFields(fields: Readonly<Record<string, unknown>>): Delivery {
  const command = readCommand(fields);
  if (command) return command;
  if (fields.ssl_check !== undefined) return { kind: 'other' };
  throw new OracleError('validation_failed', { message: ['command: is missing or incomplete'] });
}

function parseJson(body: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(body).toString('utf8'));
  } catch (cause) {
    throw new OracleError('invalid_json', { cause });
  }
}

/** A message of a person to the bot. */
export const SlackMessage = z.object({
  eventId: z.string(),
  team: z.string(),
  user: z.string(),
  channel: z.string(),
  /** Identifies the message in its channel. */
  ts: z.string(),
  /** The thread to answer in; none in a direct conversation outside of threads. */
  thread: z.string().optional(),
  text: z.string(),
  files: z.array(SlackFile).optional(),
  /** Where to answer a slash command, for half an hour. */
  responseUrl: z.string().optional(),
  /** The run to show, of a turn that continues after an answer of the user. */
  runId: z.string().optional(),
  /** The session of this run: a question of a slash command is answered elsewhere. */
  sessionId: z.string().optional(),
  /** The paused run of this session whose continuation is to be shown, and the posts with its questions. */
  paused: z
    .object({
      runId: z.string(),
      questions: z.array(z.object({ id: z.string(), ts: z.string() })),
    })
    .optional(),
});
export type SlackMessage = z.infer<typeof SlackMessage>;

/** Subtypes that are messages of people. */
const MESSAGE_SUBTYPES = new Set([undefined, 'file_share', 'thread_broadcast']);

/** Returns the message of an event; undefined if no person addresses the bot. */
export function parseMessage(callback: EventCallback): SlackMessage | undefined {
  const { event, event_id: eventId, team_id: team } = callback;
  const { user, channel, ts } = event;
  if (!user || !channel || !ts || event.bot_id || !MESSAGE_SUBTYPES.has(event.subtype))
    return undefined;
  const self = callback.authorizations?.find(({ is_bot }) => is_bot)?.user_id;
  if (user === self || !isAddressed(event)) return undefined;
  const { files = [] } = event;
  const text = plainText(event.text ?? '', self) || files.map(({ name }) => name).join(', ');
  if (!text) return undefined;
  const thread = event.thread_ts ?? (isDirect(event) ? undefined : ts);
  const more = { ...(thread && { thread }), ...(files.length > 0 && { files }) };
  return { eventId, team, user, channel, ts, text, ...more };
}

function isAddressed(event: SlackEvent): boolean {
  return event.type === 'app_mention' || (event.type === 'message' && isDirect(event));
}

function isDirect({ channel_type }: SlackEvent): boolean {
  return channel_type === 'im';
}

const MARKUP = /<([^<>]*)>/g;
const ENTITIES: Readonly<Record<string, string>> = { '&amp;': '&', '&lt;': '<', '&gt;': '>' };

/** Converts Slack's markup to plain text, without mentions of the bot. */
export function plainText(text: string, self: string | undefined): string {
  const plain = text.replace(MARKUP, (_, inside: string) => {
    const [target = '', label] = inside.split('|', 2);
    if (self !== undefined && target === `@${self}`) return '';
    return describeTarget(target, label);
  });
  return plain.replace(/&(amp|lt|gt);/g, (entity) => ENTITIES[entity] ?? entity).trim();
}

function describeTarget(target: string, label: string | undefined): string {
  const sign = target[0] ?? '';
  if (sign === '@' || sign === '#') return label ? `${sign}${label.replace(/^[@#]/, '')}` : target;
  if (sign === '!') return label ?? `@${target.slice(1)}`;
  const address = target.replace(/^mailto:/, '');
  return label && label !== address && label !== target ? `${label} (${address})` : address;
}

/** Older deliveries may be replayed. */
const MAX_AGE_SECONDS = 5 * 60;

export interface SignedRequest {
  /** `X-Slack-Signature`. */
  readonly signature: string | undefined;
  /** `X-Slack-Request-Timestamp`. */
  readonly timestamp: string | undefined;
  /** The body, byte for byte as it came. */
  readonly body: Uint8Array;
}

/** Verifies that Slack signed a request. */
export class RequestSignature {
  constructor(
    /** Without one, as with Socket Mode, nothing is genuine. */
    private readonly secret: string | undefined,
    private readonly clock: () => number,
  ) {}

  /** Throws the same error for every problem. */
  assert({ signature = '', timestamp = '', body }: SignedRequest): void {
    const sent = Buffer.from(signature);
    const expected = Buffer.from(this.sign(timestamp, body));
    const isGenuine =
      this.secret !== undefined &&
      sent.length === expected.length &&
      timingSafeEqual(sent, expected);
    if (isGenuine && this.isFresh(timestamp)) return;
    throw new OracleError('missing_authentication', {
      message: 'The request is not signed by Slack, or too old',
    });
  }

  sign(timestamp: string, body: Uint8Array): string {
    const hmac = createHmac('sha256', this.secret ?? '');
    return `v0=${hmac.update(`v0:${timestamp}:`).update(body).digest('hex')}`;
  }

  private isFresh(timestamp: string): boolean {
    if (!/^\d{1,12}$/.test(timestamp)) return false;
    return Math.abs(this.clock() / 1000 - Number(timestamp)) <= MAX_AGE_SECONDS;
  }
}
