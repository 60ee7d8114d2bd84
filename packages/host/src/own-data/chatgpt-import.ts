import { z } from 'zod';
import type { ImportedConversation, ImportedMessage } from './import-writer.js';

/** What has another form is as good as missing: the rest of the conversation can still be read. */
const ifValid = <Schema extends z.ZodType>(schema: Schema) => schema.optional().catch(undefined);

/** A message of a conversation, as ChatGPT exports it; what it contains besides is ignored. */
const Node = z
  .object({
    parent: ifValid(z.string()),
    message: ifValid(
      z.object({
        author: z.object({ role: z.string() }),
        content: z.object({ parts: ifValid(z.array(z.unknown())) }),
        create_time: ifValid(z.number()),
        recipient: ifValid(z.string()),
        metadata: ifValid(z.object({ is_visually_hidden_from_conversation: z.unknown() })),
      }),
    ),
  })
  .catch({ parent: undefined, message: undefined });
type Node = z.infer<typeof Node>;

const Conversation = z.object({
  title: ifValid(z.string()),
  create_time: ifValid(z.number()),
  update_time: ifValid(z.number()),
  mapping: z.record(z.string(), Node),
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
  const times = path.flatMap(([, { message }]) => message?.create_time || []);
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
function findNewest(nodes: Readonly<Record<string, Node>>): string | undefined {
  let newest: { readonly id: string; readonly time: number } | undefined;
  for (const [id, { message }] of Object.entries(nodes)) {
    const time = message?.create_time ?? 0;
    if (message && time >= (newest?.time ?? 0)) newest = { id, time };
  }
  return newest?.id;
}

/** From the first message to the one that the conversation ends with; a loop ends it. */
function readPath(nodes: Readonly<Record<string, Node>>, last: string | undefined) {
  const path: (readonly [string, Node])[] = [];
  const seen = new Set<string>();
  for (let id = last; id !== undefined && !seen.has(id); id = nodes[id]?.parent ?? undefined) {
    const node = Object.hasOwn(nodes, id) ? nodes[id] : undefined;
    if (!node) break;
    seen.add(id);
    path.push([id, node]);
  }
  return path.reverse();
}

/** Instructions, tools and what the page hides are left out. */
function toMessage(id: string, { message }: Node, fallback: number): ImportedMessage[] {
  if (!message || message.metadata?.is_visually_hidden_from_conversation) return [];
  const { role } = message.author;
  if (role !== 'user' && role !== 'assistant') return [];
  // What the assistant sends to a tool.
  if (message.recipient && message.recipient !== 'all') return [];
  const content = (message.content.parts ?? []).flatMap(toText).join('\n').trim();
  if (content === '') return [];
  const createdAt = message.create_time ? toMilliseconds(message.create_time) : fallback;
  return [{ id, type: role === 'user' ? 'human' : 'ai', content, createdAt }];
}

/** What was spoken in a voice conversation. */
const Transcription = z.object({
  content_type: z.literal('audio_transcription'),
  text: z.string(),
});

/** The text of a part; none for images and recordings. */
function toText(part: unknown): string[] {
  if (typeof part === 'string') return [part];
  const { data } = Transcription.safeParse(part);
  return data ? [data.text] : [];
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
