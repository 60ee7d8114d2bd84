import {
  type CallerTurns,
  type ClientTool,
  type ClientToolCall,
  findClientToolCall,
  readAnswer,
  type Surface,
  type SurfaceRun,
  type ToolChoice,
} from '@sibyl/plugin-kit/surface';
import {
  type DoneFrame,
  type ErrorCode,
  type ErrorFrame,
  errorCatalog,
  type JsonObject,
  OracleError,
} from '@sibyl/protocol';
import { type Conversation, invalid } from './conversation.js';
import type { ChatRequest, Effort } from './schemas.js';

/** The name of the host's default model for clients that must send one. */
export const DEFAULT_MODEL = 'default';

/** An unlisted session has a title so that no model is asked for one. */
export const UNLISTED = { isUnlisted: true, title: 'OpenAI API' };

/** The person whom a request names; some programs send more than an id, which means something else. */
export const findUser = ({
  user,
  safety_identifier: id,
}: Pick<ChatRequest, 'user' | 'safety_identifier'>) =>
  [user, id].find((named) => typeof named === 'string');

/** What a request says about the answer. */
export interface TurnChoices {
  readonly model: string;
  readonly tools: readonly ClientTool[];
  readonly toolChoice: ToolChoice | undefined;
  readonly responseSchema: JsonObject | undefined;
  readonly effort: Effort;
  readonly idempotencyKey: string | undefined;
  /** The answer that the message follows; the latest one by default. */
  readonly after?: string | undefined;
}

/** A `tool_choice` of either API. */
export interface GivenChoice {
  readonly mode: ToolChoice | 'auto';
  /** The only tools that the model may call. */
  readonly allowed?: readonly string[];
}

/** The tools that the model may call, and what it has to do about them; throws if it could not do it. */
export function chooseTools(
  declared: readonly ClientTool[],
  { mode, allowed }: GivenChoice,
): Pick<TurnChoices, 'tools' | 'toolChoice'> {
  const named = typeof mode === 'object' ? [mode.tool] : (allowed ?? []);
  const unknown = named.find((name) => !declared.some((tool) => tool.name === name));
  if (unknown !== undefined) throw invalidChoice(`tools has no function ${unknown}`);
  const tools = allowed ? declared.filter(({ name }) => allowed.includes(name)) : declared;
  if (mode === 'required' && tools.length === 0)
    throw invalidChoice('"required" needs at least one function in tools');
  return { tools, toolChoice: mode === 'auto' ? undefined : mode };
}

const invalidChoice = (problem: string) =>
  new OracleError('validation_failed', { message: [`tool_choice: ${problem}`] });

const OUTPUTS_ABOVE = 'Continue with the results of the tools above.';

/** Starts a turn; `history` is left out where the session contains it. */
export async function startTurn(
  turns: CallerTurns,
  sessionId: string,
  conversation: Conversation,
  choices: TurnChoices,
): Promise<SurfaceRun> {
  const { instructions, history, question } = conversation;
  const { model, tools, toolChoice, responseSchema, effort, idempotencyKey, after } = choices;
  return turns.start({
    sessionId,
    message: question?.text ?? OUTPUTS_ABOVE,
    files: question?.files ?? [],
    history,
    clientTools: tools,
    ...(toolChoice && { toolChoice }),
    ...(instructions && { instructions }),
    ...(model !== DEFAULT_MODEL && { model }),
    ...(responseSchema && { responseSchema }),
    ...(effort && { reasoningEffort: REASONING[effort] }),
    ...(idempotencyKey !== undefined && { idempotencyKey }),
    ...(after !== undefined && { after }),
  });
}

const REASONING = {
  none: 'none',
  minimal: 'low',
  low: 'low',
  medium: 'medium',
  high: 'high',
  xhigh: 'high',
} as const;

/** Continues the turn that waits for these results; undefined if none does any more. */
export async function continueTurn(
  { turns, pageUrl }: Pick<ReadDeps, 'turns' | 'pageUrl'>,
  conversation: Conversation,
  toolChoice: ToolChoice | undefined,
): Promise<SurfaceRun | undefined> {
  const { outputs, question } = conversation;
  if (question) return keepResults(turns, conversation);
  let runId: string | undefined;
  for (const { callId, output: value } of outputs) {
    const id = toQuestionId(callId);
    runId = (await turns.answer({ id, value, toolChoice }).catch(ignoreClosed))?.runId ?? runId;
  }
  const run = runId === undefined ? undefined : await turns.findRun(runId);
  if (run?.status === 'paused') await assertAnswered({ turns, run, pageUrl }, outputs);
  return run;
}

/** Throws if the run with these calls waits for something else too: read again, it would ask for their results again. */
async function assertAnswered(
  { turns, run, pageUrl }: Omit<ReadDeps, 'signal'>,
  outputs: Conversation['outputs'],
): Promise<void> {
  const asked = new Set((await turns.asked(run.runId)).map(({ id }) => id));
  if (!outputs.some(({ callId }) => asked.has(toQuestionId(callId)))) return;
  const open = (await turns.pending(run.sessionId)).filter(({ id }) => asked.has(id));
  const call = open.find(({ kind }) => kind === 'tool_call');
  if (call) throw invalid(`The result of ${CALL_PREFIX}${call.id} is missing`);
  if (open.length > 0)
    throw invalid(`This needs your decision too. Open ${pageUrl}, then send the results again.`);
}

/** The message ends the turn that waits for them. */
async function keepResults(turns: CallerTurns, { outputs }: Conversation): Promise<undefined> {
  for (const { callId, output } of outputs)
    await turns.keepResult({ id: toQuestionId(callId), value: output }).catch(ignoreClosed);
}

export const CALL_PREFIX = 'call_';

const toQuestionId = (callId: string) => callId.replace(CALL_PREFIX, '');

const CLOSED: readonly ErrorCode[] = ['interrupt_not_found', 'interrupt_closed'];

function ignoreClosed(error: unknown): undefined {
  if (error instanceof OracleError && CLOSED.includes(error.code)) return undefined;
  throw error;
}

/** A call that the client has to run. */
export interface FunctionCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

/** How a run ended. */
export interface RunEnd {
  readonly status: DoneFrame['status'];
  /** The whole text: if a host crashed, a stream may have sent more. */
  readonly text: string;
  readonly calls: readonly FunctionCall[];
  /** Whether the turn waits, for calls or for something that this API cannot express. */
  readonly isWaiting: boolean;
  readonly usage: DoneFrame['usage'];
  readonly error: OracleError | undefined;
  /** Why the model has ended its answer early, as OpenAI names it. */
  readonly truncatedBy: TruncationReason | undefined;
}

type TruncationReason = 'length' | 'content_filter';

/** By the codes of the host's warnings. */
const TRUNCATIONS: ReadonlyMap<string, TruncationReason> = new Map([
  ['answer_cut', 'length'],
  ['answer_filtered', 'content_filter'],
]);

export type RunEvent =
  /** The caller may read it: until then, an error is a response with its own status. */
  | { readonly type: 'begin' }
  /** A host crashed: the numbers of later events are above this one, since it may have sent events that were not stored. */
  | { readonly type: 'resumed'; readonly above: number }
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | { readonly type: 'end'; readonly end: RunEnd };

interface ReadDeps {
  readonly turns: CallerTurns;
  readonly run: SurfaceRun;
  readonly pageUrl: string;
  readonly signal: AbortSignal;
}

/** That an answer can be read, its text, then how it ended; ends early if the client disconnects. */
export async function* readRun(deps: ReadDeps): AsyncGenerator<RunEvent> {
  const { turns, run, signal } = deps;
  let error: OracleError | undefined;
  let truncatedBy: TruncationReason | undefined;
  let hasBegun = false;
  let begin = '';
  for await (const { runId, part, text: whole } of readAnswer(turns, run, signal)) {
    if (!hasBegun || part.event === 'run') yield toBegin(part.seq, hasBegun);
    hasBegun = true;
    switch (part.event) {
      case 'message': {
        // The host separates the texts of a turn by empty lines; here a turn that continues is another answer.
        const text = begin ? part.data.content : part.data.content.replace(/^\n+/, '');
        begin ||= text;
        yield* say('text', text);
        break;
      }
      case 'reasoning':
        yield* say('reasoning', part.data.reasoning);
        break;
      case 'error':
        error = toOracleError(part.data);
        break;
      case 'warning':
        truncatedBy = TRUNCATIONS.get(part.data.code) ?? truncatedBy;
        break;
      case 'done':
        yield* end(deps, part.data, { runId, text: whole.replace(/^\n+/, ''), error, truncatedBy });
    }
  }
}

const toBegin = (seq: number, hasBegun: boolean): RunEvent =>
  hasBegun ? { type: 'resumed', above: seq } : { type: 'begin' };

function* say(type: 'text' | 'reasoning', text: string): Generator<RunEvent> {
  if (text) yield { type, text };
}

/** For a run that nothing can read later: it is cancelled if its client disconnects, and forgotten unless it waits for its client. */
export async function* readOnce(
  { turns, run }: Pick<ReadDeps, 'turns' | 'run'>,
  events: AsyncGenerator<RunEvent>,
  forget: () => Promise<void>,
): AsyncGenerator<RunEvent> {
  let end: RunEnd | undefined;
  try {
    for await (const event of events) {
      if (event.type === 'end') end = event.end;
      yield event;
    }
  } finally {
    if (!end) await turns.cancel(run.runId);
    if (!end?.isWaiting) await forget().catch(ignoreGone);
  }
}

/** Another request has deleted it meanwhile. */
function ignoreGone(error: unknown): void {
  if (!(error instanceof OracleError && error.code === 'session_not_found')) throw error;
}

async function* end(
  { turns, pageUrl }: ReadDeps,
  { status, usage, pending = [] }: DoneFrame,
  {
    runId,
    text,
    ...reasons
  }: Pick<RunEnd, 'text' | 'error' | 'truncatedBy'> & { readonly runId: string },
): AsyncGenerator<RunEvent> {
  const asked = pending.length > 0 ? await turns.asked(runId) : [];
  // In the order of the calls.
  const calls = pending.flatMap(({ id, kind }) => {
    const question = asked.find((each) => each.id === id);
    const call = question && findClientToolCall(question);
    return kind === 'tool_call' && call ? [toFunctionCall(id, call)] : [];
  });
  const needsUser = pending.some(({ kind }) => kind !== 'tool_call');
  const hint = needsUser ? `\n\nThis needs your decision. Open ${pageUrl} to continue.` : '';
  yield* say('text', hint);
  const isWaiting = pending.length > 0;
  const isIncomplete = status === 'interrupted' || status === 'aborted';
  const { error = reasons.error } = (isIncomplete && (await turns.findRun(runId))) || {};
  const end = { status, text: text + hint, calls, isWaiting, usage, ...reasons, error };
  yield { type: 'end', end };
}

export const toFunctionCall = (id: string, { toolName, args }: ClientToolCall): FunctionCall => ({
  id: `${CALL_PREFIX}${id}`,
  name: toolName,
  arguments: JSON.stringify(args),
});

const isErrorCode = (code: string): code is ErrorCode => code in errorCatalog;

/** Clients wait for it before they repeat a request that may succeed then. */
const RETRY_SECONDS = 5;

function toOracleError({ error: message, code = '', kind, retryable }: ErrorFrame): OracleError {
  // What a provider refuses, it refuses again: clients repeat requests after a 503.
  if (kind === 'unknown' && code === 'model_unavailable' && !retryable)
    return new OracleError('bad_request', { message });
  return new OracleError(isErrorCode(code) ? code : 'model_unavailable', {
    message,
    ...(retryable && { retryAfterSeconds: RETRY_SECONDS }),
  });
}

/** The id of a model that a client names, also without its provider if only one has it; throws if the host has none. */
export function findModel({ models }: Surface, model: string): string {
  if (model === DEFAULT_MODEL || models.some(({ id }) => id === model)) return model;
  const named = models.filter(({ id }) => id.slice(id.indexOf('/') + 1) === model);
  if (named[0] && named.length === 1) return named[0].id;
  const message = `The model ${model} does not exist; GET /v1/models lists those of this oracle`;
  throw new OracleError('not_found', { message });
}

export const toUsage = (usage: DoneFrame['usage']) => {
  const { inputTokens = 0, outputTokens = 0, cachedTokens = 0 } = usage ?? {};
  return { inputTokens, outputTokens, cachedTokens, total: inputTokens + outputTokens };
};
