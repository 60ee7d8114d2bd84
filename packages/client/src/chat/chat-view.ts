import type { Message, MessagePart, ToolCall } from '@sibyl/protocol';
import { type AnswerPart, type Call, fitText } from '../turns/turn.js';
import { type ChatMessage, type ChatState, type History, STORED_FIELDS } from './chat.js';
import { isAfterAnswer, isOpen, isShown, type LiveTurn } from './live-turns.js';

type LoadedHistory = Pick<History, 'messages' | 'hasOlder' | 'hasNewer'>;

interface ChatViewInput {
  readonly history: LoadedHistory;
  readonly live: readonly LiveTurn[];
  readonly loading: 'loading' | 'loaded' | 'failed';
  readonly error: ChatState['error'];
  readonly connection: ChatState['connection'];
}

interface CachedTurn {
  readonly turn: ConversationTurn;
  readonly messages: readonly ChatMessage[];
}

/** Builds the state of a chat; unchanged messages stay the same objects. */
export class ChatView {
  private cache = new Map<string, CachedTurn>();
  private messages: readonly ChatMessage[] = [];

  build({ history, live, loading, error, connection }: ChatViewInput): ChatState {
    const shown = history.hasNewer ? findLoaded(history, live) : live;
    const cached = mergeTurns(history.messages, shown).map((turn) => this.toCached(turn));
    this.cache = new Map(cached.map((each) => [getKey(each.turn), each]));
    this.messages = reuseIfEqual(
      this.messages,
      cached.flatMap(({ messages }) => messages),
    );
    return {
      messages: this.messages,
      status: loading === 'loaded' ? getStatus(live) : loading,
      ...(error && { error }),
      waiting: Math.max(0, live.filter(isOpen).length - 1),
      hasOlder: history.hasOlder,
      hasNewer: history.hasNewer,
      connection,
    };
  }

  private toCached(turn: ConversationTurn): CachedTurn {
    const known = this.cache.get(getKey(turn));
    if (known && isSame(known.turn, turn)) return { ...known, turn };
    return { turn, messages: toMessages(turn) };
  }
}

/** Far above the end, only the turns whose messages are loaded are shown. */
function findLoaded({ messages }: LoadedHistory, live: readonly LiveTurn[]): readonly LiveTurn[] {
  const loaded = new Set(messages.map(({ requestId }) => requestId));
  return live.filter(({ requestId }) => loaded.has(requestId));
}

const getKey = ({ human, ai, requestId }: ConversationTurn): string =>
  human?.id ?? ai?.id ?? requestId;

const isSame = (a: ConversationTurn, b: ConversationTurn): boolean =>
  a.human === b.human &&
  a.ai === b.ai &&
  a.isWaiting === b.isWaiting &&
  (a.live === b.live || isDropped(a.live, b.live));

/** An ended turn looks the same after its live state is dropped. */
const isDropped = (before: LiveTurn | undefined, now: LiveTurn | undefined): boolean =>
  now === undefined && before?.phase === 'ended';

function reuseIfEqual<T>(before: readonly T[], now: readonly T[]): readonly T[] {
  const isSameList = now.length === before.length && now.every((each, i) => each === before[i]);
  return isSameList ? before : now;
}

function getStatus(turns: readonly LiveTurn[]): ChatState['status'] {
  const open = turns.filter(({ phase }) => phase === 'open');
  if (turns.some(({ phase }) => phase === 'rejoining')) return 'rejoining';
  if (open.some(({ turn }) => turn.runId)) return 'running';
  return open.length > 0 ? 'sending' : 'ready';
}

const emptyFields = {
  reasoning: '',
  calls: [],
  components: [],
  parts: [],
  attachments: [],
  warnings: [],
} as const;

function toMessages(turn: ConversationTurn): ChatMessage[] {
  return [toQuestion(turn), toAnswer(turn)].filter((message) => message !== undefined);
}

function toQuestion({
  requestId,
  human,
  live,
  isWaiting,
}: ConversationTurn): ChatMessage | undefined {
  const question = live?.question;
  if (!human && !question) return undefined;
  return {
    ...emptyFields,
    id: question ? `${requestId}:human` : (human?.id ?? ''),
    type: 'human',
    content: human?.content ?? question?.content ?? '',
    createdAt: human?.createdAt ?? live?.startedAt ?? '',
    requestId,
    attachments: human?.attachments ?? question?.attachments ?? [],
    ...toStoredFields(human),
    ...(live?.error && !human && { sendError: live.error }),
    status: human ? (isWaiting ? 'waiting' : 'stored') : getQuestionStatus(live, isWaiting),
  };
}

/** The server stores a question before it sends the run id. */
function getQuestionStatus(live: LiveTurn | undefined, isWaiting: boolean): ChatMessage['status'] {
  if (live?.turn.runId) return isWaiting ? 'waiting' : 'stored';
  return live?.phase === 'lost' ? 'failed' : 'sending';
}

function toAnswer({ ai, live, isWaiting }: ConversationTurn): ChatMessage | undefined {
  // The question is on the active path, but with another answer.
  if (live?.isStored && !ai) return undefined;
  if (live?.turn.runId && !isWaiting && !isOutdated(live, ai)) return toLiveAnswer(live, ai);
  const id = live ? toLiveId(live) : undefined;
  return ai && { ...toStoredAnswer(ai), ...(id && { id }) };
}

/** Whether the history is ahead: of the stream, or since the turn was continued and finished elsewhere. */
const isOutdated = (live: LiveTurn, ai: Message | undefined): boolean =>
  ai?.isComplete === true && (isOpen(live) || live.turn.status === 'interrupted');

/** From the first part to the last: another id would be another message. */
const toLiveId = ({ requestId }: LiveTurn): string => `${requestId}:ai`;

function toLiveAnswer(live: LiveTurn, ai: Message | undefined): ChatMessage {
  const { requestId, startedAt, turn } = live;
  const { reasoning, calls, components, warnings, error } = turn;
  const content = ai && !isOpen(live) ? ai.content : turn.text;
  return {
    id: toLiveId(live),
    type: 'ai',
    content,
    createdAt: ai?.createdAt ?? startedAt,
    requestId,
    reasoning,
    calls,
    components,
    parts: content === turn.text ? turn.parts : fitText(turn.parts, content),
    attachments: [],
    warnings,
    ...(error && { error }),
    ...toStoredFields(ai),
    status: getAnswerStatus(live),
  };
}

function getAnswerStatus(live: LiveTurn): ChatMessage['status'] {
  const { status } = live.turn;
  if (status === 'finished') return 'stored';
  if (status === 'failed') return 'failed';
  return isOpen(live) ? 'running' : 'incomplete';
}

function toStoredAnswer(ai: Message): ChatMessage {
  const { id, content, createdAt, requestId, reasoning = '', toolCalls = [], isComplete } = ai;
  const parts = ai.parts ? toAnswerParts(ai, ai.parts) : [];
  const status = isComplete ? 'stored' : ai.status === 'failed' ? 'failed' : 'incomplete';
  return {
    ...emptyFields,
    id,
    type: 'ai',
    content,
    createdAt,
    requestId,
    reasoning,
    calls: toolCalls.map(toCall),
    components: parts.flatMap((part) => (part.type === 'component' ? part.component : [])),
    parts: fitText(parts, content),
    ...toStoredFields(ai),
    ...toStoredError(ai),
    status,
  };
}

function toCall(call: ToolCall): Call {
  return { ...call, kind: 'tool', ...(call.status === 'error' && { error: call.output }) };
}

/** The stored parts in the form in which a stream reports them. */
function toAnswerParts(
  { requestId, id }: Message,
  parts: readonly MessagePart[],
): readonly AnswerPart[] {
  return parts.flatMap((part, index): AnswerPart | [] => {
    switch (part.type) {
      case 'tool-call':
        return { type: 'call', call: toCall(part.call) };
      case 'component': {
        const { id: eventId = `${id} ${index}`, name: componentName, args } = part.component;
        const event = { sessionId: '', requestId, eventId, componentName, status: 'done' as const };
        return { type: 'component', component: { ...event, ...(args && { args }) } };
      }
      case 'file':
        return [];
      default:
        return part;
    }
  });
}

/** What only a stored message has. */
function toStoredFields(message: Message | undefined): Partial<ChatMessage> {
  if (!message) return {};
  const known = STORED_FIELDS.filter((field) => message[field] !== undefined);
  const fields = known.map((field) => [field, message[field]]);
  return { messageId: message.id, ...Object.fromEntries(fields) };
}

/** The reason in the form in which the stream reported it. */
function toStoredError({ error, requestId, createdAt: timestamp }: Message): Partial<ChatMessage> {
  if (!error) return {};
  const { code, message, kind = 'unknown' } = error;
  const frame = {
    error: message,
    code,
    kind,
    retryable: true,
    sessionId: '',
    requestId,
    timestamp,
  };
  return { error: frame };
}

/** A question, its answer, and their live turn. */
interface ConversationTurn {
  readonly requestId: string;
  readonly human?: Message;
  readonly ai?: Message;
  readonly live?: LiveTurn;
  /** Queued behind another turn. */
  readonly isWaiting: boolean;
}

/** Merges stored messages and live turns in order. */
function mergeTurns(stored: readonly Message[], live: readonly LiveTurn[]): ConversationTurn[] {
  const turns = groupByTurn(stored);
  const firstOpen = live.find(isOpen);
  let index = turns.length;
  // Backwards: a turn that is not stored goes before the one sent after it.
  for (const each of live.toReversed()) {
    if (!isShown(each, stored) || isAfterAnswer(each, stored, live)) continue;
    index = insertTurn(turns, { live: each, isWaiting: isOpen(each) && each !== firstOpen }, index);
  }
  return turns;
}

/** Adds a live turn where its messages are, below its question, or at an index; returns where an earlier one goes. */
function insertTurn(
  turns: ConversationTurn[],
  { live, isWaiting }: { readonly live: LiveTurn; readonly isWaiting: boolean },
  index: number,
): number {
  const { requestId, questionId = '' } = live;
  const known = turns.findIndex((turn) => turn.requestId === requestId);
  const asked = turns.findIndex(({ human }) => human?.id === questionId);
  const merged: ConversationTurn = { requestId, ...turns[known], live, isWaiting };
  if (known >= 0) {
    turns[known] = merged;
    // Nothing is between a question and its answer.
    return merged.human ? known : known + 1;
  }
  turns.splice(asked < 0 ? index : asked + 1, 0, merged);
  return asked >= 0 && asked < index ? index + 1 : index;
}

/** Groups questions with their answers, which share a request id. */
function groupByTurn(messages: readonly Message[]): ConversationTurn[] {
  const turns: ConversationTurn[] = [];
  for (const message of messages) {
    const { requestId, type } = message;
    const last = turns.at(-1);
    if (type === 'ai' && last?.requestId === requestId && !last.ai) {
      turns[turns.length - 1] = { ...last, ai: message };
    } else {
      turns.push({ requestId, [type]: message, isWaiting: false });
    }
  }
  return turns;
}
