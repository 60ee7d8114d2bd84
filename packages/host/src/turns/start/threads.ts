import type { ClientMessage } from '@sibyl/plugin-kit/surface';
import { OracleError } from '@sibyl/protocol';
import { PARAGRAPH } from '../../agent/conversation.js';
import type { SessionKey } from '../../bus/event-bus.js';
import type { TurnOrigin } from '../../store/branches.js';
import type { Run } from '../../store/runs/run.js';
import type { Session } from '../../store/session-store.js';
import type { Store } from '../../store/store.js';
import type { KnownMessage } from '../../store/thread-store.js';

/** What a conversation that a client sends asks for. */
export type ThreadRequest =
  | {
      readonly type: 'message';
      readonly text: string;
      /** The ids that the client gave it. */
      readonly clientIds: readonly string[];
      readonly origin?: TurnOrigin | undefined;
      /** The same for a repeated request, and no other. */
      readonly key: readonly unknown[];
    }
  | { readonly type: 'again'; readonly questionId: string }
  | { readonly type: 'join'; readonly run: Run };

interface Conversation {
  readonly messages: readonly ClientMessage[];
  readonly regenerates?: boolean | undefined;
}

type ThreadsStore = Pick<Store, 'threads' | 'messages' | 'runs'>;

/** Messages of a client that are looked at; a conversation may be longer. */
const MAX_MESSAGES = 200;

/** Finds what is new in a conversation that a client keeps itself. */
export async function readThread(
  store: ThreadsStore,
  session: Session,
  { messages, regenerates }: Conversation,
): Promise<ThreadRequest> {
  const recent = messages.slice(-MAX_MESSAGES);
  const known = await store.threads.messages(
    session,
    recent.map(({ id }) => id),
  );
  const last = recent.findLastIndex(({ role }) => role === 'user');
  const question = recent[last];
  if (!question) throw new OracleError('bad_request', { message: NO_QUESTION });
  const stored = known.get(question.id);
  if (stored?.type === 'human') {
    const said = recent.filter(({ id, role }) => role === 'user' && known.get(id) === stored);
    return readKnown(store, session, { said, stored, regenerates: regenerates === true });
  }
  return readNew(store, session, { messages: recent.slice(0, last + 1), known });
}

const NO_QUESTION = 'There is no message of the user';

interface KnownQuestion {
  /** Messages of the client that are one in the session. */
  readonly said: readonly ClientMessage[];
  readonly stored: KnownMessage;
  readonly regenerates: boolean;
}

/** A message that the session contains: edited, to be answered again, or only repeated. */
async function readKnown(
  store: ThreadsStore,
  key: SessionKey,
  { said, stored, regenerates }: KnownQuestion,
): Promise<ThreadRequest> {
  const text = joinTexts(said);
  if (text.trim() !== stored.content.trim() && !(await isPart(store, key, { said, stored }))) {
    const origin = { parentId: stored.parent };
    const clientIds = said.map(({ id }) => id);
    return { type: 'message', text, clientIds, origin, key: [...clientIds, stored.id] };
  }
  const run = regenerates ? undefined : await findRun(store, key, stored);
  return run ? { type: 'join', run } : { type: 'again', questionId: stored.id };
}

const joinTexts = (messages: readonly ClientMessage[]) =>
  messages.map(({ text }) => text).join(PARAGRAPH);

/** Whether the client sends only some of the messages that are one in the session: a missing message is not an edit. */
async function isPart(
  { threads }: ThreadsStore,
  key: SessionKey,
  { said, stored }: Pick<KnownQuestion, 'said' | 'stored'>,
): Promise<boolean> {
  const ids = await threads.clientIds(key, stored.id);
  if (ids.length <= said.length) return false;
  // Not by searching texts in a text, which takes their product for repetitive ones.
  const known = new Set(listParagraphs(stored.content));
  return said.every(({ text }) => listParagraphs(text).every((paragraph) => known.has(paragraph)));
}

const listParagraphs = (text: string): string[] =>
  text
    .split(PARAGRAPH)
    .map((paragraph) => paragraph.trim())
    .filter(Boolean);

/** The run that answers a message; undefined if it failed or was canceled. */
async function findRun(
  { runs }: ThreadsStore,
  { owner }: SessionKey,
  { runId }: KnownMessage,
): Promise<Run | undefined> {
  const first = runId === null ? undefined : await runs.find({ owner, runId });
  const latest = first && (await runs.latestAttempt(first));
  return latest && ANSWERING.has(latest.status) ? latest : undefined;
}

const ANSWERING: ReadonlySet<Run['status']> = new Set(['queued', 'running', 'paused', 'finished']);

interface NewQuestion {
  /** Up to the newest message of the user. */
  readonly messages: readonly ClientMessage[];
  readonly known: ReadonlyMap<string, KnownMessage>;
}

async function readNew(
  store: ThreadsStore,
  session: Session,
  { messages, known }: NewQuestion,
): Promise<ThreadRequest> {
  const before = messages.findLastIndex(({ id }) => known.has(id));
  const predecessor = known.get(messages[before]?.id ?? '');
  const origin = predecessor && (await findOrigin(store, session, predecessor));
  // What is before an answer was answered elsewhere.
  const answered = messages.findLastIndex(({ role }) => role === 'assistant');
  const added = messages
    .slice(Math.max(before, answered) + 1)
    .filter(({ role }) => role === 'user');
  const clientIds = added.map(({ id }) => id);
  const text = joinTexts(added);
  return { type: 'message', text, clientIds, origin, key: [clientIds, origin?.parentId ?? null] };
}

/** Where a message begins a branch; undefined if it follows the latest one. */
async function findOrigin(
  store: ThreadsStore,
  { owner, sessionId, activeMessageId }: Session,
  predecessor: KnownMessage,
): Promise<{ readonly parentId: string } | undefined> {
  const { id, type, turn } = predecessor;
  if (activeMessageId === undefined || id === activeMessageId) return undefined;
  if (type === 'ai') return { parentId: id };
  // The client may not have the answer: then its question represents it.
  const latest = await store.messages.find({ owner, messageId: activeMessageId });
  const latestTurn = latest?.turn ?? (await store.runs.current({ owner, sessionId }))?.turn;
  if (latest?.parent === id || latestTurn === turn) return undefined;
  const answer = await store.threads.findAnswer({ owner, sessionId, questionId: id });
  return { parentId: answer ?? id };
}
