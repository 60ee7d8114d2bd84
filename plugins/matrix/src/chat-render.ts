import type { EndedInterrupt, OpenInterrupt } from '@sibyl/plugin-kit/chat';
import type { ReplyPart } from '@sibyl/protocol';
import { Marked, type MarkedExtension } from 'marked';
import { z } from 'zod';
import type { EventContent } from './chat-channel.js';

/** An event may have 65,536 bytes with everything around its content; HTML is longer than Markdown. */
const MAX_BODY_BYTES = 16_000;
const MAX_CONTENT_BYTES = 48_000;

const escapeHtml = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

/** The addresses that clients may open. */
const SAFE_LINK = /^(https?:\/\/|mailto:|matrix:)/i;

const OPTIONS: MarkedExtension = {
  gfm: true,
  breaks: true,
  renderer: {
    // What looks like HTML is text of the answer.
    html: ({ text }) => escapeHtml(text),
    // Clients show no images of other servers.
    image: ({ text, href }) => escapeHtml(text ? `${text} (${href})` : href),
    // False leaves it to the default.
    link: ({ href, raw }) => (SAFE_LINK.test(href) ? false : escapeHtml(raw)),
    // Events may not contain inputs.
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
  },
};

/** The contents of the events that show a text, without the first `skipped`. Each is made when it is sent: all of a long text would keep the host busy. */
export function* renderText(markdown: string, skipped = 0): Generator<EventContent, void> {
  for (const piece of splitText(markdown, MAX_BODY_BYTES).slice(skipped)) yield renderPiece(piece);
}

function renderPiece(body: string): EventContent {
  // `m.notice` marks what a program wrote, so that other programs do not answer it.
  const plain = { msgtype: 'm.notice', body };
  const formatted = { ...plain, ...renderHtml(body) };
  const size = Buffer.byteLength(JSON.stringify(formatted));
  return size <= MAX_CONTENT_BYTES ? formatted : plain;
}

/** Nothing if it takes long, or if quotes or lists nest too deeply to be rendered. */
function renderHtml(markdown: string): EventContent {
  if (NESTED.test(markdown) || hasLongRuns(markdown)) return {};
  try {
    const marked = new Marked(OPTIONS, limitWork());
    const html = marked.parse(markdown, { async: false }).trim();
    return { format: 'org.matrix.custom.html', formatted_body: html };
  } catch {
    return {};
  }
}

/** Marks that each open a quote or a list within the one before. */
const NESTED = /(?:>[ \t]{0,4}|(?:[-*+]|\d{1,9}[.)])[ \t]{1,4}){100}/;

/** The parser searches spaces, and words without them, again from each of their characters. */
function hasLongRuns(markdown: string): boolean {
  if (/[ \t]{300}/.test(markdown)) return true;
  const words = markdown.match(/\S+/g) ?? [];
  return words.reduce((sum, { length }) => sum + length ** 2, 0) > MAX_WORD ** 2;
}
const MAX_WORD = 3000;

/** Characters that the parser may go through: 100 ms at most. */
const MAX_WORK = 3_000_000;

/** The parser compares each mark with all that follows in its paragraph: it stops when that is too much. */
function limitWork(): MarkedExtension {
  let work = 0;
  const count = (cost: number): false => {
    work += cost;
    if (work > MAX_WORK) throw new Error('the text takes too long to format');
    // Leaves it to the default.
    return false;
  };
  // The first that it tries at the beginning of each block, and of each part of a line.
  const tokenizer = {
    space: (rest: string) => count(rest.length / 4),
    escape: (rest: string) => count(measureMark(rest)),
  };
  return { tokenizer };
}

/** Emphasis is the slowest. */
function measureMark(rest: string): number {
  if (/^[*_~]/.test(rest)) return 4 * rest.length;
  return /^[![<`]/.test(rest) ? rest.length : 1;
}

const FENCE = /^\s*(```|~~~)/;

/** Splits a text at the ends of lines; code that is split continues as code. */
export function splitText(text: string, maxBytes: number): string[] {
  const pieces: string[] = [];
  let lines: string[] = [];
  let size = 0;
  let fence: string | undefined;
  const close = () => {
    if (lines.length > 0) pieces.push([...lines, ...(fence ? [FENCE_END] : [])].join('\n'));
    lines = fence ? [fence] : [];
    size = fence ? Buffer.byteLength(fence) : 0;
  };
  for (const line of text.split('\n').flatMap((long) => splitLine(long, maxBytes / 2))) {
    const bytes = Buffer.byteLength(line) + 1;
    if (size + bytes > maxBytes && lines.length > 0) close();
    lines.push(line);
    size += bytes;
    if (FENCE.test(line)) fence = fence === undefined ? line.slice(0, 100) : undefined;
  }
  fence = undefined;
  close();
  return pieces;
}

const FENCE_END = '```';

/** Splits a long line between characters. */
function splitLine(line: string, maxBytes: number): string[] {
  if (Buffer.byteLength(line) <= maxBytes) return [line];
  const pieces: string[] = [];
  let piece = '';
  let size = 0;
  for (const character of line) {
    const bytes = Buffer.byteLength(character);
    if (size + bytes > maxBytes) {
      pieces.push(piece);
      piece = '';
      size = 0;
    }
    piece += character;
    size += bytes;
  }
  return [...pieces, piece];
}

const Schema = z.object({
  type: z.string().optional(),
  enum: z.array(z.union([z.string(), z.number()])).optional(),
  properties: z.record(z.string(), z.unknown()).optional(),
});
const parseSchema = (schema: unknown) => Schema.safeParse(schema).data ?? {};

const QuestionData = z.union([
  z.string(),
  z.object({ question: z.string() }).transform(({ question }) => question),
  z.object({ message: z.string() }).transform(({ message }) => message),
]);

/** A question of a tool, and how to answer it in the thread. */
export function describeQuestion(question: OpenInterrupt, page: string): string {
  const { data: text } = QuestionData.safeParse(question.data);
  const shown = text ?? (question.data === undefined ? 'May I continue?' : quote(question.data));
  return `${shown}\n\n_${describeAnswers(question, page)}_`;
}

const quote = (data: unknown) => `\`\`\`\n${JSON.stringify(data, null, 2)}\n\`\`\``;

function describeAnswers({ isApproval, schema }: OpenInterrupt, page: string): string {
  if (isApproval)
    return `This call needs an approval that is signed with your key, which is not possible here. Approve it at ${page} if this account is linked, or reply "deny".`;
  const { type, enum: values, properties } = parseSchema(schema);
  if (type === 'boolean') return 'Reply "yes" or "no".';
  if (values) return `Reply with one of: ${values.join(', ')}.`;
  if (properties)
    return `Reply with a line "name: value" for each: ${Object.keys(properties).join(', ')}.`;
  return 'Reply with your answer.';
}

/** What the room must know about questions that were not answered in it. */
export const describeEnds = (questions: readonly EndedInterrupt[]): string =>
  [...new Set(questions.flatMap(({ outcome }) => ENDS[outcome] ?? []))].join('\n\n');

const ENDS: Readonly<Partial<Record<EndedInterrupt['outcome'], string>>> = {
  approved: '_Approved._',
  expired: '_The question has expired._',
  cancelled: '_The question is closed: the conversation continues elsewhere._',
};

/** The denial of a call that needs approval, with the reason. */
export function readDenial(text: string): { readonly reason?: string } | undefined {
  const [match, reason] = /^(?:deny|denied|no)\b[\s:,.!]*(.*)$/is.exec(text.trim()) ?? [];
  if (match === undefined) return undefined;
  return reason?.trim() ? { reason: reason.trim() } : {};
}

/** Converts a reply to what the schema of the question describes; the host checks it. */
export function readAnswer({ schema }: Pick<OpenInterrupt, 'schema'>, text: string): unknown {
  const { type, enum: values, properties } = parseSchema(schema);
  if (values) return values.find((value) => isSame(String(value), text)) ?? text;
  if (!properties) return convert(text, type);
  const known = new Map(
    Object.keys(properties)
      .map((key) => [normalize(key), key] as const)
      .reverse(),
  );
  const fields = text.split('\n').flatMap((line) => {
    // Not a pattern: one for this takes hours for a long line of spaces.
    const colon = line.indexOf(':');
    const key = known.get(normalize(line.slice(0, Math.max(0, colon))));
    return key ? [[key, line.slice(colon + 1)] as const] : [];
  });
  // Of several lines with the same name, the last one counts.
  const last = [...new Map(fields)];
  return Object.fromEntries(
    last.map(([key, value]) => [key, convert(value, parseSchema(properties[key]).type)]),
  );
}

const normalize = (name: string) => name.trim().toLowerCase();
const isSame = (a: string, b: string) => normalize(a) === normalize(b);

function convert(text: string, type = 'string'): unknown {
  const said = text.trim();
  if (type === 'boolean') {
    if (/^(yes|y|true|ok)[.!]*$/i.test(said)) return true;
    return /^(no|n|false)[.!]*$/i.test(said) ? false : said;
  }
  if ((type === 'number' || type === 'integer') && said !== '') return Number(said);
  return said;
}

/** An answer of the user to a question of a run, as it is stored. */
export const Answer = z.object({
  owner: z.string(),
  sessionId: z.string(),
  runId: z.string(),
  id: z.string(),
  denial: z.object({ reason: z.string().optional() }).optional(),
  value: z.unknown().optional(),
});
export type Answer = z.infer<typeof Answer>;

/** A reply as a whole, and its run if it waits for an answer of the user. */
interface ReadReply {
  readonly text: string;
  readonly pausedRun: string | undefined;
}

/** Reads a reply to its end. */
export async function readReply(parts: AsyncIterable<ReplyPart>): Promise<ReadReply> {
  let text = '';
  let note = '';
  let pausedRun: string | undefined;
  for await (const { event, data } of parts) {
    if (event === 'message') text += data.content;
    if (event === 'error') note = `⚠️ ${data.error}`;
    if (event !== 'done') continue;
    text = data.partialText ?? text;
    if (data.pending?.length) pausedRun = data.runId;
    else note ||= ENDINGS[data.status] ?? '';
  }
  return { text: [text, note].filter((part) => part.trim()).join('\n\n'), pausedRun };
}

const ENDINGS: Readonly<Record<string, string>> = {
  aborted: '_Stopped._',
  interrupted: '_Interrupted. Ask again to get the whole answer._',
  failed: '⚠️ _The answer failed._',
};

export const ENCRYPTED =
  '**This room is end-to-end encrypted, so I cannot read its messages.** Encryption of a room cannot be turned off: please invite me to a room without it.';
