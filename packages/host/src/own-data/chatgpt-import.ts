import { z } from 'zod';
import type { ImportedConversation, ImportedMessage } from './import-writer.js';

/** What has another form is as good as missing: the rest of the conversation can still be read. */
const ifValid = <Schema extends z.ZodType>(schema: Schema) => schema.optional().catch(undefined);

/** A message of a conversation, as ChatGPT exports it. */
interface Node {
  readonly parent?: string | undefined;
  readonly message?: Message | undefined;
}

interface Message {
  readonly role: string;
  readonly parts: readonly unknown[];
  readonly createTime?: number | undefined;
  readonly recipient?: string | undefined;
  readonly isHidden: boolean;
}

/** Without a schema: reporting each of the many values of a malicious conversation would keep the host busy. */
function readNode(value: unknown): Node {
  const { parent, message } = toFields(value);
  return { parent: toText(parent), message: readMessage(toFields(message)) };
}

function readMessage(fields: Fields): Message | undefined {
  const { author, content, create_time: time, recipient, metadata } = fields;
  const role = toText(toFields(author).role);
  const { parts } = toFields(content);
  if (role === undefined || typeof content !== 'object') return undefined;
  return {
    role,
    parts: Array.isArray(parts) ? parts : [],
    createTime: typeof time === 'number' && Number.isFinite(time) ? time : undefined,
    recipient: toText(recipient),
    isHidden: Boolean(toFields(metadata).is_visually_hidden_from_conversation),
  };
}

type Fields = Readonly<Record<string, unknown>>;

const toFields = (value: unknown): Fields =>
  typeof value === 'object' && value !== null ? (value as Fields) : {};

const toText = (value: unknown) => (typeof value === 'string' ? value : undefined);

const Conversation = z.object({
  title: ifValid(z.string()),
  create_time: ifValid(z.number()),
  update_time: ifValid(z.number()),
  mapping: z.custom<Fields>(
    (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
  ),
  current_node: ifValid(z.string()),
  conversation_id: z.string().min(1).max(200).optional(),
  id: z.string().min(1).max(200).optional(),
});

const TITLE_LENGTH = 200;

/** Converts a conversation of ChatGPT: the messages that it shows, oldest first. Undefined if it is none. */
export function convertConversation(value: unknown): ImportedConversation | undefined {
  const { data } = Conversation.safeParse(value);
  const id = data?.conversation_id ?? data?.id;
  if (!data || id === undefined) return undefined;
  const { mapping, current_node: current = '' } = data;
  const path = readPath(mapping, Object.hasOwn(mapping, current) ? current : findNewest(mapping));
  const times = path.flatMap(([, { message }]) => message?.createTime || []);
  const begin = data.create_time ?? times[0] ?? 0;
  const createdAt = toMilliseconds(begin);
  return {
    id: `chatgpt:${id}`,
    title: data.title?.slice(0, TITLE_LENGTH) || 'Untitled',
    createdAt,
    updatedAt: toMilliseconds(data.update_time ?? begin),
    messages: joinAnswers(path.flatMap(([nodeId, node]) => toMessage(nodeId, node, createdAt))),
  };
}

/** The last of the newest messages. */
function findNewest(nodes: Fields): string | undefined {
  let newest: { readonly id: string; readonly time: number } | undefined;
  for (const [id, value] of Object.entries(nodes)) {
    const { message } = readNode(value);
    const time = message?.createTime ?? 0;
    if (message && time >= (newest?.time ?? 0)) newest = { id, time };
  }
  return newest?.id;
}

/** From the first message to the one that the conversation ends with; a loop ends it. */
function readPath(nodes: Fields, last: string | undefined) {
  const path: (readonly [string, Node])[] = [];
  const seen = new Set<string>();
  for (let id = last; id !== undefined && !seen.has(id) && Object.hasOwn(nodes, id); ) {
    const node = readNode(nodes[id]);
    seen.add(id);
    path.push([id, node]);
    id = node.parent;
  }
  return path.reverse();
}

/** Instructions, tools and what the page hides are left out. */
function toMessage(id: string, { message }: Node, fallback: number): ImportedMessage[] {
  if (!message || message.isHidden) return [];
  const { role, parts, recipient, createTime } = message;
  if (role !== 'user' && role !== 'assistant') return [];
  // What the assistant sends to a tool.
  if (recipient && recipient !== 'all') return [];
  const content = parts
    .flatMap((part) => readPart(part) ?? [])
    .join('\n')
    .trim();
  if (content === '') return [];
  const createdAt = createTime ? toMilliseconds(createTime) : fallback;
  return [{ id, type: role === 'user' ? 'human' : 'ai', content, createdAt }];
}

/** The text of a part, or what was spoken in a voice conversation; none for images and recordings. */
function readPart(part: unknown): string | undefined {
  const { content_type: type, text } = toFields(part);
  return toText(type === 'audio_transcription' ? text : part);
}

/** An answer of several parts becomes one message. */
function joinAnswers(messages: readonly ImportedMessage[]): ImportedMessage[] {
  const joined: ImportedMessage[] = [];
  for (const message of messages) {
    const last = joined.at(-1);
    if (last?.type === 'ai' && message.type === 'ai')
      joined[joined.length - 1] = { ...last, content: `${last.content}\n\n${message.content}` };
    else joined.push(message);
  }
  return joined;
}

const LATEST_TIME = 253_402_300_799;

const toMilliseconds = (seconds: number): number =>
  Math.round(Math.min(Math.max(seconds, 0), LATEST_TIME) * 1000);
