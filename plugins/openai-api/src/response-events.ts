import { type CallerTurns, findClientToolCall, type SurfaceRun } from '@sibyl/plugin-kit/surface';
import type { InputItem } from './schemas.js';
import type { ResponseFacts } from './stored-responses.js';
import {
  CALL_PREFIX,
  type FunctionCall,
  type RunEnd,
  type readRun,
  toFunctionCall,
  toUsage,
} from './turn.js';

const MESSAGE_PREFIX = 'msg_';
const ITEM_PREFIX = 'fc_';

/** What a response shows of a run. */
interface Progress {
  readonly text: string;
  readonly end: RunEnd | undefined;
}

/** A `response` object of OpenAI's API. */
export function toResponse(run: SurfaceRun, facts: ResponseFacts, { text, end }: Progress) {
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
    output: listOutput(run, { text, end }),
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

function listOutput(run: SurfaceRun, { text, end }: Progress) {
  const message = text ? [toMessageItem(run, text, 'completed')] : [];
  return end
    ? [...message, ...end.calls.map((call) => toCallItem(run, call, 'completed'))]
    : message;
}

const toPart = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] });

const toMessageItem = ({ messageId, runId }: SurfaceRun, text: string, status: string) => ({
  type: 'message',
  // Attempts of one turn share the id of the message.
  id: `${MESSAGE_PREFIX}${messageId}_${runId}`,
  status,
  role: 'assistant',
  content: status === 'completed' ? [toPart(text)] : [],
});

const toCallItem = (
  { runId }: SurfaceRun,
  { id, name, arguments: args }: FunctionCall,
  status: string,
) => ({
  type: 'function_call',
  id: `${id.replace(CALL_PREFIX, ITEM_PREFIX)}_${runId}`,
  call_id: id,
  name,
  arguments: status === 'completed' ? args : '',
  status,
});

/** The item of an answer with this id, as the client would send it whole; undefined if the caller has none. */
export async function findItem(turns: CallerTurns, itemId: string): Promise<InputItem | undefined> {
  const [id = '', runId = ''] = itemId.split(/_(?=[^_]*$)/);
  const run = await turns.findRun(runId);
  if (!run) return undefined;
  if (id === MESSAGE_PREFIX + run.messageId) {
    let text = '';
    for await (const part of turns.readStored(runId))
      if (part.event === 'message') text += part.data.content;
    return { role: 'assistant', content: text.trimStart() };
  }
  const question = (await turns.asked(runId)).find((asked) => ITEM_PREFIX + asked.id === id);
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
  let text = '';
  for await (const event of events) {
    switch (event.type) {
      case 'begin':
        yield* begin(toResponse({ ...run, status: 'running' }, facts, { text, end: undefined }));
        break;
      case 'text':
        if (!text) yield* openMessage(run);
        text += event.text;
        yield toDelta(run, event.text);
        break;
      case 'reasoning':
        break;
      default:
        if (text) yield* closeMessage(run, text);
        yield* sendCalls(run, event.end.calls, text ? 1 : 0);
        yield* finish(toResponse(run, facts, { text, end: event.end }));
    }
  }
}

interface ResponseEvent {
  readonly type: string;
  readonly [field: string]: unknown;
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

const toDelta = (run: SurfaceRun, delta: string): ResponseEvent => {
  return { type: 'response.output_text.delta', ...toPlace(run), delta, logprobs: [] };
};

const toPlace = (run: SurfaceRun) => ({
  item_id: toMessageItem(run, '', 'in_progress').id,
  output_index: 0,
  content_index: 0,
});

function* openMessage(run: SurfaceRun): Generator<ResponseEvent> {
  const item = toMessageItem(run, '', 'in_progress');
  yield { type: 'response.output_item.added', output_index: 0, item };
  yield { type: 'response.content_part.added', ...toPlace(run), part: toPart('') };
}

function* closeMessage(run: SurfaceRun, text: string): Generator<ResponseEvent> {
  const place = toPlace(run);
  yield { type: 'response.output_text.done', ...place, text, logprobs: [] };
  yield { type: 'response.content_part.done', ...place, part: toPart(text) };
  const item = toMessageItem(run, text, 'completed');
  yield { type: 'response.output_item.done', output_index: 0, item };
}

function* sendCalls(
  run: SurfaceRun,
  calls: readonly FunctionCall[],
  offset: number,
): Generator<ResponseEvent> {
  for (const [i, call] of calls.entries()) yield* sendCall(run, call, offset + i);
}

function* sendCall(
  run: SurfaceRun,
  call: FunctionCall,
  output_index: number,
): Generator<ResponseEvent> {
  const added = toCallItem(run, call, 'in_progress');
  const place = { item_id: added.id, output_index };
  const { name, arguments: args } = call;
  yield { type: 'response.output_item.added', output_index, item: added };
  yield { type: 'response.function_call_arguments.delta', ...place, delta: args };
  yield { type: 'response.function_call_arguments.done', ...place, name, arguments: args };
  const item = toCallItem(run, call, 'completed');
  yield { type: 'response.output_item.done', output_index, item };
}

/** Numbers the events and leaves out those that the client has. */
export async function* toSse(
  events: AsyncIterable<ResponseEvent>,
  after: number,
): AsyncGenerator<string> {
  let sequence_number = 0;
  for await (const event of events) {
    if (sequence_number > after)
      yield `event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number })}\n\n`;
    sequence_number += 1;
  }
}
