import type { Message } from '@sibyl/protocol';
import type { Call } from '../turns/turn.js';
import type { ChatMessage } from './chat.js';
import type { Exchange } from './exchanges.js';
import { isOpen, type LiveTurn } from './live-turn.js';

const nothing = {
  reasoning: '',
  calls: [],
  components: [],
  attachments: [],
  warnings: [],
} as const;

/** The messages of an exchange as a page shows them. */
export function showExchange(exchange: Exchange): ChatMessage[] {
  return [showQuestion(exchange), showAnswer(exchange)].filter((message) => message !== undefined);
}

function showQuestion({ requestId, human, live, isWaiting }: Exchange): ChatMessage | undefined {
  const question = live?.question;
  if (!human && !question) return undefined;
  return {
    ...nothing,
    id: question ? `${requestId}:human` : (human?.id ?? ''),
    type: 'human',
    content: human?.content ?? question?.content ?? '',
    createdAt: human?.createdAt ?? live?.startedAt ?? '',
    requestId,
    attachments: human?.attachments ?? question?.attachments ?? [],
    status: isWaiting ? 'waiting' : human ? 'stored' : statusOfQuestion(live),
  };
}

/** The host has stored a question before it names the run (contract B4). */
function statusOfQuestion(live: LiveTurn | undefined): ChatMessage['status'] {
  if (live?.turn.runId) return 'stored';
  return live?.phase === 'lost' ? 'failed' : 'sending';
}

function showAnswer({ ai, live, isWaiting }: Exchange): ChatMessage | undefined {
  if (live?.turn.runId && !isWaiting) return liveAnswer(live, ai);
  return ai && storedAnswer(ai);
}

function liveAnswer(live: LiveTurn, ai: Message | undefined): ChatMessage {
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
    status: statusOfAnswer(live),
  };
}

function statusOfAnswer(live: LiveTurn): ChatMessage['status'] {
  const { status } = live.turn;
  if (status === 'finished') return 'stored';
  if (status === 'failed') return 'failed';
  return isOpen(live) ? 'running' : 'incomplete';
}

function storedAnswer(ai: Message): ChatMessage {
  const { id, content, createdAt, requestId, reasoning = '', toolCalls = [], isComplete } = ai;
  const calls = toolCalls.map((call): Call => {
    const isError = call.status === 'error';
    return { ...call, kind: 'tool', ...(isError && { error: call.output }) };
  });
  const status = isComplete ? 'stored' : 'incomplete';
  return { ...nothing, id, type: 'ai', content, createdAt, requestId, reasoning, calls, status };
}
