import type { Caller } from '@sibyl/plugin-kit';
import {
  type CallerTurns,
  RouteReply,
  type Surface,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import { OracleError } from '@sibyl/protocol';
import { assertCalls, type Conversation, readChatMessages } from './conversation.js';
import { type ChatRequest, formatError, type OpenAiObject } from './schemas.js';
import {
  chooseTools,
  continueTurn,
  findModel,
  findUser,
  type GivenChoice,
  type RunEnd,
  type RunEvent,
  readOnce,
  readRun,
  startTurn,
  type TurnChoices,
  toUsage,
  UNLISTED,
} from './turn.js';

export interface ChatDeps {
  readonly surface: Surface;
  readonly pageUrl: string;
}

interface ChatCall {
  readonly caller: Caller;
  readonly body: ChatRequest;
  readonly idempotencyKey: string | undefined;
  readonly signal: AbortSignal;
}

/** A turn that answers one request. */
interface ChatTurn {
  readonly turns: CallerTurns;
  readonly run: SurfaceRun;
  /** Whether the client names no session; a turn that it continues may still be in a listed one. */
  readonly isTemporary: boolean;
}

/** Answers `POST /v1/chat/completions`. */
export async function completeChat(
  deps: ChatDeps,
  call: ChatCall,
): Promise<OpenAiObject | RouteReply> {
  const { body, signal } = call;
  const model = findModel(deps.surface, body.model);
  const turn = await openTurn(deps, { ...call, body: { ...body, model } });
  const reading = readRun({ ...turn, pageUrl: deps.pageUrl, signal });
  const events = readOnce(turn, reading, async () => {
    if (turn.isTemporary) await turn.turns.deleteUnlisted(turn.run.sessionId);
  });
  const head = {
    id: `chatcmpl-${turn.run.runId}`,
    created: Math.floor(turn.run.createdAt / 1000),
    model: body.model,
  };
  if (!body.stream) return collect(head, events);
  return RouteReply.events(streamChunks(head, events, body));
}

async function openTurn({ surface, pageUrl }: ChatDeps, call: ChatCall): Promise<ChatTurn> {
  const { caller, body, idempotencyKey, signal } = call;
  const turns = surface.for(caller, signal, findUser(body));
  const conversation = readChatMessages(body.messages);
  const wanted = body.metadata?.session_id ?? turns.onlySession;
  const isTemporary = wanted === undefined && !body.store;
  // A repeated stateless request has another session, so its key cannot find the first one.
  const choices = readChoices(body, wanted === undefined ? undefined : idempotencyKey);
  const { toolChoice } = choices;
  const continued = await continueTurn({ turns, pageUrl }, conversation, toolChoice);
  if (continued) return { turns, run: continued, isTemporary };
  const own: Conversation = wanted === undefined ? conversation : { ...conversation, history: [] };
  assertCalls(own);
  const sessionId = wanted ?? (await turns.openSession(isTemporary ? UNLISTED : {})).sessionId;
  const run = await startTurn(turns, sessionId, own, choices);
  return { turns, run, isTemporary };
}

function readChoices(body: ChatRequest, idempotencyKey: string | undefined): TurnChoices {
  const { tools, tool_choice, response_format: format } = body;
  const declared = (tools ?? []).map(({ function: { name, description, parameters } }) => {
    return { name, description: description ?? '', schema: parameters ?? { type: 'object' } };
  });
  const schema = format?.type === 'json_schema' ? format.json_schema.schema : undefined;
  return {
    model: body.model,
    ...chooseTools(declared, readToolChoice(tool_choice)),
    responseSchema: format?.type === 'json_object' ? { type: 'object' } : schema,
    effort: body.reasoning_effort,
    idempotencyKey,
  };
}

function readToolChoice(choice: ChatRequest['tool_choice']): GivenChoice {
  if (typeof choice !== 'object' || choice === null) return { mode: choice ?? 'auto' };
  if (choice.type === 'function') return { mode: { tool: choice.function.name } };
  const { mode, tools } = choice.allowed_tools;
  return { mode, allowed: tools.map(({ function: { name } }) => name) };
}

type Events = ReturnType<typeof readRun>;

interface Head {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

async function collect(head: Head, events: Events) {
  let reasoning = '';
  let end: RunEnd | undefined;
  for await (const event of events) {
    if (event.type === 'end') end = event.end;
    if (event.type === 'reasoning') reasoning += event.text;
  }
  const content = end?.text;
  const failure = end && findFailure(end, end.text);
  if (failure) throw failure;
  const tool_calls = (end?.calls ?? []).map(toToolCall);
  const message = {
    role: 'assistant',
    content: content || null,
    refusal: null,
    // As DeepSeek and vLLM name it: OpenAI shows no reasoning here.
    ...(reasoning && { reasoning_content: reasoning }),
    ...(tool_calls.length > 0 && { tool_calls }),
  };
  const choice = { index: 0, message, logprobs: null, finish_reason: toFinishReason(end) };
  return { ...head, object: 'chat.completion', choices: [choice], usage: toChatUsage(end) };
}

async function* streamChunks(
  head: Head,
  events: Events,
  { stream_options }: ChatRequest,
): AsyncGenerator<string, void> {
  const send = (data: object) => `data: ${JSON.stringify(data)}\n\n`;
  const chunk = (delta: object, finish_reason: string | null = null) => {
    const choices = [{ index: 0, delta, logprobs: null, finish_reason }];
    return send({ ...head, object: 'chat.completion.chunk', choices });
  };
  for await (const event of events) {
    if (event.type === 'resumed') continue;
    if (event.type !== 'end') {
      yield chunk(toDelta(event));
      continue;
    }
    const { end } = event;
    const failure = findFailure(end, '');
    if (failure) return yield send(formatError(failure));
    yield* end.calls.map((call, index) => chunk({ tool_calls: [{ index, ...toToolCall(call) }] }));
    yield chunk({}, toFinishReason(end));
    const usage = {
      ...head,
      object: 'chat.completion.chunk',
      choices: [],
      usage: toChatUsage(end),
    };
    if (stream_options?.include_usage) yield send(usage);
    yield 'data: [DONE]\n\n';
  }
}

function toDelta(event: Exclude<RunEvent, { type: 'end' | 'resumed' }>) {
  switch (event.type) {
    case 'begin':
      return { role: 'assistant', content: '' };
    case 'reasoning':
      return { reasoning_content: event.text };
    default:
      return { content: event.text };
  }
}

/** An answer that was canceled is partial; without any text there is none. */
function findFailure({ status, isWaiting, error }: RunEnd, text: string): OracleError | undefined {
  if (status === 'failed') return error ?? new OracleError('model_unavailable');
  if (error?.code === 'access_revoked') return error;
  if (status === 'interrupted' && !isWaiting && !text)
    return error ?? new OracleError('turn_interrupted');
  return undefined;
}

const toToolCall = ({ id, ...call }: RunEnd['calls'][number]) => {
  return { id, type: 'function', function: call };
};

/** To clients, `stop` means that the answer is complete. */
function toFinishReason(end: RunEnd | undefined): string {
  if (end && end.calls.length > 0) return 'tool_calls';
  if (end?.truncatedBy) return end.truncatedBy;
  return end?.isWaiting || end?.status === 'finished' ? 'stop' : 'length';
}

function toChatUsage(end: RunEnd | undefined) {
  const { inputTokens, outputTokens, cachedTokens, total } = toUsage(end?.usage);
  return {
    prompt_tokens: inputTokens,
    completion_tokens: outputTokens,
    total_tokens: total,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}
