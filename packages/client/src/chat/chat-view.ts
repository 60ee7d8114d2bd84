import type { Message } from '@sibyl/protocol';
import type { Call } from '../turns/turn.js';
import type { ChatMessage, ChatState } from './chat.js';
import type { History } from './history.js';
import { isOpen, type LiveTurn } from './live-turns.js';

interface ChatViewInput {
  readonly history: History;
  readonly live: readonly LiveTurn[];
  readonly loading: 'loading' | 'loaded' | 'failed';
  readonly error: ChatState['error'];
  readonly connection: ChatState['connection'];
}

interface CachedTurn {
  readonly exchange: ConversationTurn;
  readonly messages: readonly ChatMessage[];
}

/** Makes the state of a chat; what has not changed stays the same object. */
export class ChatView {
  private shown = new Map<string, CachedTurn>();
  private messages: readonly ChatMessage[] = [];

  build({ history, live: turns, loading, error, connection }: ChatViewInput): ChatState {
    const shown = mergeTurns(history.messages, turns).map((exchange) => this.show(exchange));
    this.shown = new Map(shown.map((each) => [getKey(each.exchange), each]));
    this.messages = reuseIfEqual(
      this.messages,
      shown.flatMap(({ messages }) => messages),
    );
    return {
      messages: this.messages,
      status: loading === 'loaded' ? getStatus(turns) : loading,
      ...(error && { error }),
      waiting: shown.filter(({ exchange }) => exchange.isWaiting).length,
      hasOlder: history.hasOlder,
      connection,
    };
  }

  private show(exchange: ConversationTurn): CachedTurn {
    const known = this.shown.get(getKey(exchange));
    if (known && isSame(known.exchange, exchange)) return { ...known, exchange };
    return { exchange, messages: toMessages(exchange) };
  }
}

const getKey = ({ human, ai, requestId }: ConversationTurn): string =>
  human?.id ?? ai?.id ?? requestId;

const isSame = (a: ConversationTurn, b: ConversationTurn): boolean =>
  a.human === b.human &&
  a.ai === b.ai &&
  a.isWaiting === b.isWaiting &&
  (a.live === b.live || isDropped(a.live, b.live));

/** A turn that has ended is shown as before once nothing but its messages is kept. */
const isDropped = (before: LiveTurn | undefined, now: LiveTurn | undefined): boolean =>
  now === undefined && before?.phase === 'ended';

/** The list there was, when the new one holds the same. */
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
  attachments: [],
  warnings: [],
} as const;

/** The messages of an exchange as a page shows them. */
function toMessages(exchange: ConversationTurn): ChatMessage[] {
  return [toQuestion(exchange), toAnswer(exchange)].filter((message) => message !== undefined);
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
    status: isWaiting ? 'waiting' : human ? 'stored' : getQuestionStatus(live),
  };
}

/** The host has stored a question before it names the run (contract B4). */
function getQuestionStatus(live: LiveTurn | undefined): ChatMessage['status'] {
  if (live?.turn.runId) return 'stored';
  return live?.phase === 'lost' ? 'failed' : 'sending';
}

function toAnswer({ ai, live, isWaiting }: ConversationTurn): ChatMessage | undefined {
  if (live?.turn.runId && !isWaiting) return toLiveAnswer(live, ai);
  return ai && toStoredAnswer(ai);
}

function toLiveAnswer(live: LiveTurn, ai: Message | undefined): ChatMessage {
  const { requestId, startedAt, turn } = live;
  const { reasoning, calls, components, warnings, error } = turn;
  return {
    id: `${requestId}:ai`,
    type: 'ai',
    content: ai && !isOpen(live) ? ai.content : turn.text,
    createdAt: ai?.createdAt ?? startedAt,
    requestId,
    reasoning,
    calls,
    components,
    attachments: [],
    warnings,
    ...(error && { error }),
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
  const calls = toolCalls.map((call): Call => {
    const isError = call.status === 'error';
    return { ...call, kind: 'tool', ...(isError && { error: call.output }) };
  });
  const status = isComplete ? 'stored' : 'incomplete';
  return {
    ...emptyFields,
    id,
    type: 'ai',
    content,
    createdAt,
    requestId,
    reasoning,
    calls,
    status,
  };
}

/** A question, its answer, and what is known of the turn between them. */
interface ConversationTurn {
  readonly requestId: string;
  readonly human?: Message;
  readonly ai?: Message;
  readonly live?: LiveTurn;
  /** Behind a turn that has not ended. */
  readonly isWaiting: boolean;
}

/** Puts stored messages and live turns together, in order. */
function mergeTurns(stored: readonly Message[], live: readonly LiveTurn[]): ConversationTurn[] {
  const exchanges = groupByTurn(stored);
  const places = new Map(exchanges.map(({ requestId }, i) => [requestId, i]));
  const firstOpen = live.find(isOpen);
  let place = exchanges.length;
  // From the last one backwards: one that is not stored stands before the one sent after it.
  for (const turn of live.toReversed()) {
    const { requestId } = turn;
    const isWaiting = isOpen(turn) && turn !== firstOpen;
    const known = places.get(requestId);
    place = known ?? place;
    const paired = {
      requestId,
      ...(known !== undefined && exchanges[known]),
      live: turn,
      isWaiting,
    };
    exchanges.splice(place, known === undefined ? 0 : 1, paired);
  }
  return exchanges;
}

/** A question begins an exchange; an answer joins the one it has the request id of. */
function groupByTurn(messages: readonly Message[]): ConversationTurn[] {
  const exchanges: ConversationTurn[] = [];
  for (const message of messages) {
    const { requestId, type } = message;
    const last = exchanges.at(-1);
    if (type === 'ai' && last?.requestId === requestId && !last.ai) {
      exchanges[exchanges.length - 1] = { ...last, ai: message };
    } else {
      exchanges.push({ requestId, [type]: message, isWaiting: false });
    }
  }
  return exchanges;
}
