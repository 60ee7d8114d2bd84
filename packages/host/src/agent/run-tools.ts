import { createHash, randomUUID } from 'node:crypto';
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { canonicalJson, JsonObject, type ToolCall } from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import type { MediaPart, ModelToolCall } from '../models/model.js';
import { startSpan } from '../observability/spans.js';
import type { AgentTool } from './agent.js';
import type { CallInterrupts } from './call-interrupts.js';
import type { PendingInterrupt } from './steps.js';

const STARTED_AT_ONCE = 4;

export interface CallBatch {
  readonly calls: readonly ParsedCall[];
  readonly tools: ReadonlyMap<string, AgentTool>;
  /** Calls that do not run, with their results. */
  readonly refused: ReadonlyMap<string, ToolCall>;
  readonly openCall: (call: ParsedCall) => CallInterrupts;
  /** Receives the files that a call returned, for the model only. */
  readonly onMedia?: ((id: string, media: readonly MediaPart[]) => void) | undefined;
  /** Called with the result of each call that ran, and its seconds. */
  readonly onEnd?: ((call: ToolCall, seconds: number) => void) | undefined;
  readonly signal: AbortSignal;
}

/** How a call ended, or what it waits for. */
export type CallOutcome =
  | { readonly id: string; readonly ended: ToolCall }
  | { readonly id: string; readonly waiting: readonly PendingInterrupt[] };

/** Runs calls concurrently and yields the outcome of each when it is known. Every call has one. */
export async function* runCalls(batch: CallBatch): AsyncGenerator<CallOutcome> {
  const left = new AbortController();
  const signal = AbortSignal.any([batch.signal, left.signal]);
  const answer = (call: ParsedCall) => executeCall(call, { ...batch, signal });
  let ready: Promise<void> | undefined;
  const outcomes = inOrderOfEnd(
    batch.calls.map((call, i) => {
      // Validating inputs blocks the event loop, so calls start a few at a time.
      if (i > 0 && i % STARTED_AT_ONCE === 0)
        ready = (ready ?? Promise.resolve()).then(() => yieldToEventLoop());
      return ready?.then(() => answer(call)) ?? answer(call);
    }),
  );
  let running = outcomes.length;
  try {
    for (const next of outcomes) {
      const outcome = await next;
      running -= 1;
      yield outcome;
    }
  } finally {
    // Stops the remaining tools if the reader stops early; without any, the reason of the abort would be made for nothing.
    if (running > 0) left.abort();
  }
}

/** Promises of the same results, of which the first one settles first. Racing them again for each would be quadratic. */
function inOrderOfEnd<T>(work: readonly Promise<T>[]): Promise<T>[] {
  const ends = work.map(() => Promise.withResolvers<T>());
  let ended = 0;
  for (const each of work)
    each.then(
      (value) => ends[ended++]?.resolve(value),
      (error) => ends[ended++]?.reject(error),
    );
  // The reader may leave before all have ended.
  for (const { promise } of ends) promise.catch(() => undefined);
  return ends.map(({ promise }) => promise);
}

/** Finds the calls that must not run; their results say why. */
export function refuseCalls({
  calls,
  tools,
  guard,
}: Pick<CallBatch, 'calls' | 'tools'> & { readonly guard: RepetitionGuard }): Map<
  string,
  ToolCall
> {
  const refused = new Map<string, ToolCall>();
  for (const call of calls) {
    const error = guard.admits(call) ? (call.error ?? findToolError(call, tools)) : REPEATED;
    if (error !== undefined) refused.set(call.id, failCall(call, error));
  }
  return refused;
}

const REPEATED =
  'Not run: this tool was called with the same input before, more than once. Use the results you have, change the input, or answer.';

function findToolError({ name }: ParsedCall, tools: CallBatch['tools']): string | undefined {
  if (tools.has(name)) return undefined;
  const names = [...tools.keys()].join(', ') || 'none';
  return `There is no tool named ${name}. Tools: ${names}`;
}

async function executeCall(call: ParsedCall, batch: CallBatch): Promise<CallOutcome> {
  const { id } = call;
  const { tools, refused, openCall, onMedia, signal } = batch;
  const tool = tools.get(call.name);
  const refusal = refused.get(id);
  if (refusal || !tool) return { id, ended: refusal ?? failCall(call, findToolError(call, tools)) };
  const interrupts = openCall(call);
  const run = () => runCall(call, tool, { interrupts, onMedia, turn: signal });
  const ended = await observeCall(call, batch, run);
  const { pending } = interrupts;
  return pending.length > 0 && !signal.aborted ? { id, waiting: pending } : { id, ended };
}

/** Measures a call, and makes it a span that contains what the tool does. */
async function observeCall(
  { id, name, args }: ParsedCall,
  { onEnd }: Pick<CallBatch, 'onEnd'>,
  run: () => Promise<ToolCall>,
): Promise<ToolCall> {
  const startedAt = performance.now();
  const facts = { operation: 'execute_tool', tool: name, toolCallId: id };
  const span = startSpan({ kind: 'tool', name, facts });
  const ended = await (span ? span.run(run) : run());
  onEnd?.(ended, (performance.now() - startedAt) / 1000);
  span?.end({
    error: ended.status === 'error' ? 'tool_failed' : undefined,
    shown: { callId: id },
    ...(span.capturesContent && {
      facts: { toolArguments: JSON.stringify(args), toolResult: ended.output },
    }),
  });
  return ended;
}

interface CallRun extends Pick<CallBatch, 'onMedia'> {
  readonly interrupts: CallInterrupts;
  readonly turn: AbortSignal;
}

/** Runs one call until it ends, times out or is aborted with the turn; never throws. */
async function runCall(
  call: ParsedCall,
  tool: AgentTool,
  { interrupts, onMedia, turn }: CallRun,
): Promise<ToolCall> {
  try {
    const checked = await tool.check(call.args);
    if (checked.error) return failCall(call, describeSchemaErrors(checked.error));
    const { id, name, args } = call;
    const { timeoutMs } = tool;
    const limit = { ms: timeoutMs, message: describeTimeout(timeoutMs), signal: turn };
    const value = await withTimeout(limit, async (signal) =>
      tool.run(checked.ok, interrupts.createCall(id, signal)),
    );
    const media = findMedia(value);
    if (media.length > 0) onMedia?.(id, media);
    return { id, name, args, status: 'done', output: toResultText(value) };
  } catch (error) {
    return turn.aborted ? abortCall(call) : failCall(call, error);
  }
}

/** The result of a call that was aborted with its turn. */
export function abortCall(call: ParsedCall): ToolCall {
  return failCall(call, 'The call was aborted with the turn.');
}

/** The result of a call that was running when the host stopped. */
export function loseCall(call: ParsedCall): ToolCall {
  return failCall(
    call,
    'The host stopped while this tool was running. Its outcome is unknown: it may or may not have had its effect. It was not run again.',
  );
}

/** The result of a call that failed or did not run. */
function failCall({ id, name, args }: ParsedCall, error: unknown): ToolCall {
  return { id, name, args, status: 'error', output: toErrorText(error) };
}

const MAX_MEDIA = 8;
const MAX_MEDIA_BYTES = 20 * 1024 * 1024;
const MEDIA_DEPTH = 3;

/** Finds the files that a tool returned, alone or inside of its result. */
function findMedia(value: unknown, depth = MEDIA_DEPTH): MediaPart[] {
  if (typeof value !== 'object' || value === null || depth === 0) return [];
  const { mediaType, data } = value as Partial<MediaPart>;
  if (typeof mediaType === 'string' && data instanceof Uint8Array)
    return data.byteLength <= MAX_MEDIA_BYTES ? [{ mediaType, data }] : [];
  if (value instanceof Uint8Array) return [];
  return Object.values(value)
    .flatMap((inner) => findMedia(inner, depth - 1))
    .slice(0, MAX_MEDIA);
}

function describeTimeout(timeoutMs: number): string {
  return `The tool did not finish within ${timeoutMs / 1000} s; whether it had an effect is unknown.`;
}

function describeSchemaErrors(errors: readonly string[]): string {
  return `The input does not fit the tool's schema: ${errors.join('; ')}`;
}

const SHOWN_INPUT = 200;
const NAME_LIMIT = 64;

/** A tool call of the model, parsed; one with an `error` is answered without running. */
export interface ParsedCall {
  readonly id: string;
  readonly name: string;
  readonly args: JsonObject;
  readonly error?: string | undefined;
}

/** Parses a tool call; an input that is not a JSON object becomes `{}` and an error. */
export function readCall({ id, name, input }: ModelToolCall): ParsedCall {
  const call = { id, name: sanitizeName(name), args: {} };
  // Many models send an empty input to a tool without parameters.
  if (input.trim() === '') return call;
  try {
    const read = JsonObject.safeParse(JSON.parse(input));
    if (read.success) return { ...call, args: read.data };
    return { ...call, error: `The input must be a JSON object: ${read.error.issues[0]?.message}` };
  } catch {
    return { ...call, error: `The input is not valid JSON: ${input.slice(0, SHOWN_INPUT)}` };
  }
}

/** The model sees its calls again, and providers reject invalid names. */
function sanitizeName(name: string): string {
  return name.replace(/[^\w-]/g, '_').slice(0, NAME_LIMIT) || 'unknown';
}

/** The most characters of one result. */
const RESULT_LIMIT = 100_000;
const ERROR_LIMIT = 500;

/** Converts any value that a tool returned to JSON text of bounded length. */
export function toResultText(value: unknown): string {
  return shortenResult(stringify(value) ?? 'null', RESULT_LIMIT);
}

/** Converts an error to JSON text for the model: one short line without a stack. */
export function toErrorText(thrown: unknown): string {
  const line = getMessage(thrown).replace(/\s+/g, ' ').trim();
  const error = line.length > ERROR_LIMIT ? `${line.slice(0, ERROR_LIMIT)}…` : line;
  return JSON.stringify({ error: error.toWellFormed() || 'The tool failed.' });
}

/** Tools may throw anything, even objects whose getters throw. */
function getMessage(thrown: unknown): string {
  try {
    const message =
      typeof thrown === 'object' && thrown && 'message' in thrown ? thrown.message : thrown;
    return typeof message === 'string' ? message : '';
  } catch {
    return '';
  }
}

/** Shortens the JSON text of a result to `limit` characters; returns valid JSON with a note. */
export function shortenResult(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const note = `Only the beginning is shown: the whole result has ${text.length} characters.`;
  const write = (length: number) =>
    JSON.stringify({ note, beginning: text.slice(0, length).toWellFormed() });
  let length = limit - write(0).length;
  let shortened = write(Math.max(0, length));
  // Quotes and line breaks become longer when they are escaped again.
  while (shortened.length > limit && length > 0) {
    length = Math.floor((length * limit) / shortened.length) - 1;
    shortened = write(Math.max(0, length));
  }
  return shortened;
}

function stringify(value: unknown): string | undefined {
  try {
    return JSON.stringify(value, writeBigInt);
  } catch (error) {
    // Detecting cycles is slow, so it happens only after the first attempt failed.
    if (error instanceof TypeError) return JSON.stringify(value, createCycleReplacer());
    throw error;
  }
}

function writeBigInt(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? value.toString() : value;
}

function createCycleReplacer() {
  const ancestors: unknown[] = [];
  return function replace(this: unknown, key: string, value: unknown): unknown {
    while (ancestors.length > 0 && ancestors.at(-1) !== this) ancestors.pop();
    if (ancestors.includes(value)) return '[circular]';
    if (typeof value === 'object' && value !== null) ancestors.push(value);
    return writeBigInt(key, value);
  };
}

const RUNS_LIMIT = 3;
const REFUSALS_LIMIT = 3;

/** Detects a model that repeats the same tool call with the same arguments. */
export class RepetitionGuard {
  /** Counts by the hash of a call, because inputs may be large; at most one entry per call of the turn. */
  private readonly runs = new Map<string, number>();
  private refusals = 0;

  /** Whether the call may run once more. */
  admits({ name, args, error }: ParsedCall): boolean {
    const key = createHash('sha256')
      .update(canonicalJson([name, args, error]))
      .digest('base64');
    const runs = (this.runs.get(key) ?? 0) + 1;
    this.runs.set(key, runs);
    if (runs <= RUNS_LIMIT) return true;
    this.refusals += 1;
    return false;
  }

  /** Whether the model continued to repeat calls after they were rejected. */
  get isExhausted(): boolean {
    return this.refusals >= REFUSALS_LIMIT;
  }
}

/**
 * Makes the id of a tool call unique within a conversation, and adds it to those that are taken: some models repeat ids
 * or send none. It has no `/` and `#`, which separate the ids in the paths of agents and the keys of interrupts.
 */
export function takeCallId(given: string, taken: Set<string>): string {
  const wanted = given.replace(/[/#]/g, '_');
  // Without dashes: some providers accept at most 40 characters.
  const id =
    wanted === '' || taken.has(wanted) ? `call_${randomUUID().replaceAll('-', '')}` : wanted;
  taken.add(id);
  return id;
}
