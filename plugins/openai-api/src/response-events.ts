import {
  type CallerTurns,
  findClientToolCall,
  readAnswer,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import {
  closeItem,
  isReasoningId,
  type ResponseEvent,
  Said,
  sendCall,
  sendDelta,
  toCallId,
  toCallItem,
  toMessageId,
  toSaidItem,
} from './output-items.js';
import type { InputItem } from './schemas.js';
import type { ResponseFacts } from './stored-responses.js';
import { CALL_PREFIX, type RunEnd, type readRun, toFunctionCall, toUsage } from './turn.js';

/** What a response shows of a run. */
interface Progress {
  readonly said?: Said;
  readonly end?: RunEnd | undefined;
}

/** A `response` object of OpenAI's API. */
export function toResponse(run: SurfaceRun, facts: ResponseFacts, progress: Progress = {}) {
  const { end } = progress;
  const failure = end?.status === 'failed' ? end.error : undefined;
  const status = end ? toStatus(end) : run.status === 'queued' ? 'queued' : 'in_progress';
  return {
    id: toResponseId(run.runId),
    object: 'response',
    created_at: Math.floor(run.createdAt / 1000),
    status,
    background: facts.isBackground,
    error: failure ? toResponseError(failure) : null,
    incomplete_details: status === 'incomplete' ? { reason: toIncompleteReason(end) } : null,
    instructions: facts.instructions,
    max_output_tokens: null,
    model: facts.model,
    output: listOutput(run, progress),
    parallel_tool_calls: true,
    previous_response_id: facts.previousId,
    reasoning: { effort: null, summary: null },
    store: facts.isStored,
    temperature: 1,
    text: { format: { type: 'text' } },
    tool_choice: facts.toolChoice ?? 'auto',
    tools: facts.tools,
    top_p: 1,
    truncation: 'disabled',
    usage: end ? toResponseUsage(end) : null,
    user: null,
    metadata: facts.metadata,
  };
}

/** OpenAI's own client reads code and message; the AI SDK requires the type too. */
const toResponseError = ({ message }: Error) => {
  return { code: 'server_error', message, type: 'server_error', param: null };
};

export const toResponseId = (runId: string) => `resp_${runId}`;

export const toRunId = (responseId: string) => responseId.replace(/^resp_/, '');

function toStatus({ status, isWaiting, truncatedBy }: RunEnd): string {
  if (isWaiting) return 'completed';
  switch (status) {
    case 'finished':
      return truncatedBy ? 'incomplete' : 'completed';
    case 'aborted':
      return 'cancelled';
    case 'interrupted':
      return 'incomplete';
    default:
      return status;
  }
}

/** To clients, an answer without a reason is complete. */
const toIncompleteReason = (end: RunEnd | undefined) =>
  end?.truncatedBy === 'content_filter' ? 'content_filter' : 'max_output_tokens';

const listOutput = (run: SurfaceRun, { said, end }: Progress) => [
  // A crash can leave nothing of a message.
  ...(said?.items ?? [])
    .filter(({ text }) => text)
    .map((item) => toSaidItem(run, item, 'completed')),
  ...(end?.calls ?? []).map((call) => toCallItem(run, call, 'completed')),
];

/** The item of an answer with this id, as the client would send it whole; undefined if the caller has none. */
export async function findItem(turns: CallerTurns, itemId: string): Promise<InputItem | undefined> {
  const [runId = ''] = itemId.split('_').slice(-1);
  const run = await turns.findRun(runId);
  if (!run) return undefined;
  // What the model has thought is not sent to it again.
  if (isReasoningId(itemId)) return { type: 'reasoning' };
  if (itemId === toMessageId(run)) {
    const stored = {
      listAttempts: (id: string) => turns.listAttempts(id),
      read: (id: string) => turns.readStored(id),
    };
    let content = '';
    for await (const { text } of readAnswer(stored, run)) content = text;
    return { role: 'assistant', content: content.trimStart() };
  }
  const question = (await turns.asked(runId)).find(
    ({ id }) => toCallId(run, CALL_PREFIX + id) === itemId,
  );
  const call = question && findClientToolCall(question);
  if (!call) return undefined;
  const { id: call_id, ...fields } = toFunctionCall(question.id, call);
  return { type: 'function_call', call_id, ...fields };
}

function toResponseUsage(end: RunEnd) {
  const { inputTokens, outputTokens, cachedTokens, total } = toUsage(end.usage);
  return {
    input_tokens: inputTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: outputTokens,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: total,
  };
}

/** The events of a response. They are the same whenever they are read, so that a client can continue after any of them. */
export async function* streamResponse(
  run: SurfaceRun,
  facts: ResponseFacts,
  events: ReturnType<typeof readRun>,
): AsyncGenerator<ResponseEvent> {
  const said = new Said();
  for await (const event of events) {
    switch (event.type) {
      case 'begin':
        yield* begin(toResponse({ ...run, status: 'running' }, facts));
        break;
      case 'resumed':
        yield { ...event };
        break;
      case 'end':
        // The deltas of a crashed host may have begun otherwise; what follows them is the answer.
        said.correct(event.end.text);
        for (const item of said.open) yield* closeItem(run, item);
        for (const [i, call] of event.end.calls.entries())
          yield* sendCall(run, call, said.items.length + i);
        yield* finish(toResponse(run, facts, { said, end: event.end }));
        break;
      default:
        yield* sendDelta(run, said, event);
    }
  }
}

type OpenAiResponse = ReturnType<typeof toResponse>;

function* begin(response: OpenAiResponse): Generator<ResponseEvent> {
  yield { type: 'response.created', response };
  yield { type: 'response.in_progress', response };
}

/** Clients know no event for a canceled response. */
function* finish(response: OpenAiResponse): Generator<ResponseEvent> {
  const { status } = response;
  yield { type: status === 'cancelled' ? 'response.incomplete' : `response.${status}`, response };
}

/** Numbers the events and leaves out those that the client has. */
export async function* toSse(
  events: AsyncIterable<ResponseEvent>,
  after: number,
): AsyncGenerator<string> {
  let sequence_number = 0;
  for await (const event of events) {
    if (event.type === 'resumed') {
      sequence_number = Math.max(sequence_number, Number(event.above));
      continue;
    }
    if (sequence_number > after)
      yield `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`;
    sequence_number += 1;
  }
}
