import { createHash } from 'node:crypto';
import { z } from 'zod';
import { EncryptedFile } from './file-download.js';

/** The field of a turn's metadata with the file of its message. */
export const FILE_FIELD = 'matrixFile';

/** A file in a room. */
export const MatrixFile = z.object({
  url: z.string().max(2000),
  name: z.string().min(1).max(255),
  mimetype: z.string().max(255),
  size: z.number().min(0).optional(),
  /** How to decrypt it. */
  encryption: EncryptedFile.optional(),
});
export type MatrixFile = z.infer<typeof MatrixFile>;

/** What the inbox stores. */
export const MatrixMessage = z.object({
  /** `encrypted`: a message that cannot be read; `continued`: shows what follows a paused turn. */
  kind: z.enum(['message', 'encrypted', 'invite', 'continued']),
  eventId: z.string(),
  roomId: z.string(),
  sender: z.string(),
  /** The root of the thread that it is in, or that its answer begins. */
  thread: z.string(),
  text: z.string(),
  file: MatrixFile.optional(),
  /** The turn that waits for its user. */
  paused: z.object({ owner: z.string(), sessionId: z.string(), runId: z.string() }).optional(),
});
export type MatrixMessage = z.infer<typeof MatrixMessage>;

/** What the inbox keeps until a paused turn continues or ends. */
export function toContinuation(
  { roomId, sender, thread }: MatrixMessage,
  paused: NonNullable<MatrixMessage['paused']>,
): MatrixMessage {
  const eventId = `after ${paused.runId}`;
  return { kind: 'continued', eventId, roomId, sender, thread, text: '', paused };
}

/** A message, and whether it must be answered in a room with several people too. */
export interface RoomMessage extends MatrixMessage {
  readonly isMention: boolean;
  readonly isInThread: boolean;
}

/** Text of a message that is kept; the host limits messages further. */
const MAX_TEXT = 60_000;

const isRecord = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const RoomEvent = z.object({
  event_id: z.string().min(1).max(255),
  type: z.string(),
  sender: z.string().max(255),
  state_key: z.string().optional(),
  // Not a record, which is copied: it may have thousands of fields.
  content: z.custom<Readonly<Record<string, unknown>>>(isRecord).catch({}),
  redacts: z.string().optional().catch(undefined),
  unsigned: z
    .object({ prev_content: z.object({ membership: z.string() }).optional().catch(undefined) })
    .catch({}),
});
export type RoomEvent = z.infer<typeof RoomEvent>;

/** Events that are not valid are left out: other members of the room can send anything. */
const RoomEvents = z
  .array(z.unknown())
  .transform((events) => events.flatMap((event) => RoomEvent.safeParse(event).data ?? []));

const InviteEvents = z
  .array(z.unknown())
  .transform((events) => events.flatMap((event) => InviteEvent.safeParse(event).data ?? []));
const InviteEvent = z.object({
  type: z.literal('m.room.member'),
  sender: z.string(),
  state_key: z.string(),
});

const Timeline = z.object({
  events: RoomEvents,
  limited: z.boolean().optional(),
  prev_batch: z.string().optional(),
});
export type Timeline = z.infer<typeof Timeline>;

/** Reply of `GET /sync`, as far as the filter lets it through. */
export const SyncReply = z.object({
  next_batch: z.string().min(1),
  rooms: z
    .object({
      join: z
        .record(
          z.string(),
          z.object({
            timeline: Timeline.optional(),
          }),
        )
        .optional(),
      invite: z
        .record(
          z.string(),
          z.object({ invite_state: z.object({ events: InviteEvents }).optional() }),
        )
        .optional(),
    })
    .optional(),
});
export type SyncReply = z.infer<typeof SyncReply>;

/** Reply of `GET /rooms/{roomId}/messages`, newest first. */
export const MessagesReply = z.object({ chunk: RoomEvents, end: z.string().optional() });

/** The kinds of events that are read. */
export const EVENT_TYPES = [
  'm.room.message',
  'm.room.encrypted',
  'm.room.redaction',
  'm.room.member',
];

/** What a sync contains, with so many events of a room. */
export const toFilter = (limit: number) => ({
  presence: { types: [] },
  account_data: { types: [] },
  room: {
    timeline: { limit, types: EVENT_TYPES },
    state: { types: [] },
    ephemeral: { types: [] },
    account_data: { types: [] },
  },
});

/** Drops what happened before the account joined the room: it is none of its business. */
export function dropBeforeJoin(events: readonly RoomEvent[], account: string) {
  const joined = events.findLastIndex((event) => isOwnJoin(event, account));
  return events.slice(joined + 1);
}

/** A change of the profile is a join after a join. */
export const isOwnJoin = ({ type, state_key, content, unsigned }: RoomEvent, account: string) =>
  type === 'm.room.member' &&
  state_key === account &&
  content.membership === 'join' &&
  unsigned.prev_content?.membership !== 'join';

/** The event that a redaction removes; rooms of newer versions name it in the content. */
export function findRedacted({ type, redacts, content }: RoomEvent): string | undefined {
  if (type !== 'm.room.redaction') return undefined;
  return typeof content.redacts === 'string' ? content.redacts : redacts;
}

const Relation = z
  .object({
    rel_type: z.string().optional(),
    event_id: z.string().max(255).optional(),
    'm.in_reply_to': z.object({ event_id: z.string() }).optional().catch(undefined),
  })
  .catch({});

const Content = z.object({
  msgtype: z.enum(['m.text', 'm.emote', 'm.image', 'm.file', 'm.audio', 'm.video']),
  body: z.string(),
  formatted_body: z.string().optional().catch(undefined),
  filename: z.string().optional().catch(undefined),
  url: z.string().optional().catch(undefined),
  file: EncryptedFile.optional().catch(undefined),
  info: z
    .object({
      mimetype: z.string().max(255).optional().catch(undefined),
      size: z.number().min(0).optional().catch(undefined),
    })
    .default({})
    .catch({}),
  'm.relates_to': Relation.default({}),
  'm.mentions': z
    .object({ user_ids: z.array(z.string()).catch([]) })
    .optional()
    .catch(undefined),
});
type Content = z.infer<typeof Content>;

interface MessagePlace {
  readonly roomId: string;
  /** The user id of the oracle. */
  readonly account: string;
}

/** The message of an event; undefined for own messages, edits, notices of bots and everything else. */
export function readMessage(
  event: RoomEvent,
  { roomId, account }: MessagePlace,
): RoomMessage | undefined {
  const { event_id: eventId, sender, type } = event;
  if (sender === account) return undefined;
  const base = { eventId, roomId, sender, thread: eventId };
  if (type === 'm.room.encrypted')
    return { ...base, kind: 'encrypted', text: '', isMention: true, isInThread: false };
  const { data: content } = Content.safeParse(event.content);
  if (type !== 'm.room.message' || !content) return undefined;
  const { rel_type: relation, event_id: root } = content['m.relates_to'];
  if (relation === 'm.replace') return undefined;
  const isInThread = relation === 'm.thread' && root !== undefined;
  const file = readFile(content);
  const text = readText(content, account) || file?.name || '';
  if (!text.trim()) return undefined;
  return {
    ...base,
    kind: 'message',
    text: text.slice(0, MAX_TEXT),
    isMention: isMention(content, account),
    isInThread,
    ...(isInThread && { thread: root }),
    ...(file && { file }),
  };
}

function readFile(content: Content): MatrixFile | undefined {
  const { msgtype, body, filename, url, file, info } = content;
  const address = file?.url ?? url;
  if (msgtype === 'm.text' || msgtype === 'm.emote' || address === undefined) return undefined;
  return MatrixFile.safeParse({
    url: address,
    name: (filename ?? body).slice(0, 255) || 'file',
    mimetype: info.mimetype ?? 'application/octet-stream',
    ...(info.size !== undefined && { size: info.size }),
    ...(file && { encryption: file }),
  }).data;
}

/** Without the quote of the message that it replies to, and without the name of the oracle in front. */
function readText(content: Content, account: string): string {
  const { body, filename, msgtype } = content;
  const isReply = content['m.relates_to']['m.in_reply_to'] !== undefined;
  const said = isReply ? body.replace(/^(> .*\n)+\n?/, '') : body;
  // The text of a file is a caption only if the name is given too.
  if (msgtype !== 'm.text' && msgtype !== 'm.emote' && (filename ?? body) === body) return '';
  const [local = ''] = account.slice(1).split(':');
  for (const name of [account, `@${local}`, local])
    if (said.toLowerCase().startsWith(name.toLowerCase()))
      return (
        said
          .slice(name.length)
          .replace(/^[\s:,]+/, '')
          .trim() || said.trim()
      );
  return said.trim();
}

/** Clients that do not send `m.mentions` have a link to the user, or the user id. */
function isMention(content: Content, account: string): boolean {
  const mentions = content['m.mentions'];
  if (mentions?.user_ids.includes(account)) return true;
  const { body, formatted_body: html = '' } = content;
  if (mentions) return body.includes(account);
  return body.includes(account) || html.includes(`https://matrix.to/#/${account}`);
}

/** The invitations of a sync; `since` makes each of them different from later ones. */
export function listInvites({ rooms }: SyncReply, account: string, since: string): MatrixMessage[] {
  return Object.entries(rooms?.invite ?? {}).flatMap(([roomId, { invite_state: state }]) => {
    const invite = state?.events.find(({ state_key }) => state_key === account);
    if (!invite) return [];
    const eventId = `invite ${roomId} ${since}`;
    return [{ kind: 'invite', eventId, roomId, sender: invite.sender, thread: '', text: '' }];
  });
}

/** The user as the host knows them: `did:matrix:alice:example.org`. */
export const toUser = (userId: string): string =>
  encodeURIComponent(userId.replace(/^@/, ''))
    .replaceAll('%3A', ':')
    .replace(/[!'()*~]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);

export const toOwner = (userId: string): string => `did:matrix:${toUser(userId)}`;

/** The same for every attempt, so that the homeserver accepts each event once. */
export const toTransactionId = (...parts: readonly string[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('base64url');
