import { createHash, randomUUID } from 'node:crypto';
import { setImmediate as yieldToEventLoop } from 'node:timers/promises';
import { JsonObject, type ToolCall } from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import type { ModelToolCall } from '../models/model.js';
import type { AgentTool } from './agent.js';
import { canonicalJson } from './json-schema.js';

const STARTED_AT_ONCE = 4;

export interface CallBatch {
  readonly calls: readonly ParsedCall[];
  readonly tools: ReadonlyMap<string, AgentTool>;
  readonly guard: RepetitionGuard;
  readonly signal: AbortSignal;
}

/** Runs calls side by side and gives each back as it finishes; every call given is given back. */
export async function* runCalls(batch: CallBatch): AsyncGenerator<ToolCall> {
  const left = new AbortController();
  const signal = AbortSignal.any([batch.signal, left.signal]);
  const answer = (call: ParsedCall) => executeCall(call, { ...batch, signal });
  let ready: Promise<void> | undefined;
  const running = new Map(
    batch.calls.map((call, i) => {
      // Checking an input takes time: many calls start a few at a time, and other requests have their turn in between.
      if (i > 0 && i % STARTED_AT_ONCE === 0)
        ready = (ready ?? Promise.resolve()).then(() => yieldToEventLoop());
      return [call.id, ready?.then(() => answer(call)) ?? answer(call)];
    }),
  );
  try {
    while (running.size > 0) {
      const finished = await Promise.race(running.values());
      running.delete(finished.id);
      yield finished;
    }
  } finally {
    // A reader that leaves early leaves no tool running behind it.
    left.abort();
  }
}

async function executeCall(call: ParsedCall, batch: CallBatch): Promise<ToolCall> {
  const { tools, guard, signal } = batch;
  if (!guard.admits(call)) return failCall(call, REPEATED);
  if (call.error !== undefined) return failCall(call, call.error);
  const tool = tools.get(call.name);
  if (tool === undefined) return failCall(call, describeUnknownTool(call.name, tools));
  return runCall(call, tool, signal);
}

const REPEATED =
  'Not run: this tool was called with the same input before, more than once. Use the results you have, change the input, or answer.';

function describeUnknownTool(name: string, tools: ReadonlyMap<string, AgentTool>): string {
  const names = [...tools.keys()].join(', ') || 'none';
  return `There is no tool named ${name}. Tools: ${names}`;
}

/** Runs one call to its end, its timeout or the turn's abort; never throws. */
async function runCall(call: ParsedCall, tool: AgentTool, turn: AbortSignal): Promise<ToolCall> {
  try {
    const checked = tool.check(call.args);
    if (checked.error) return failCall(call, describeSchemaErrors(checked.error));
    const { id, name, args } = call;
    const { timeoutMs } = tool;
    const limit = { ms: timeoutMs, message: describeTimeout(timeoutMs), signal: turn };
    const value = await withTimeout(limit, async (signal) => tool.run(checked.ok, { id, signal }));
    return { id, name, args, status: 'done', output: toResultText(value) };
  } catch (error) {
    return failCall(call, turn.aborted ? 'The call was aborted with the turn.' : error);
  }
}

/** The call as it ends when it failed or was never made. */
function failCall({ id, name, args }: ParsedCall, error: unknown): ToolCall {
  return { id, name, args, status: 'error', output: toErrorText(error) };
}

function describeTimeout(timeoutMs: number): string {
  return `The tool did not finish within ${timeoutMs / 1000} s; whether it had an effect is unknown.`;
}

function describeSchemaErrors(errors: readonly string[]): string {
  return `The input does not fit the tool's schema: ${errors.join('; ')}`;
}

const SHOWN_INPUT = 200;
const NAME_LIMIT = 64;

/** A call as the model wrote it, read; with a `fault` it is answered, not run. */
export interface ParsedCall {
  readonly id: string;
  readonly name: string;
  readonly args: JsonObject;
  readonly error?: string | undefined;
}

/** Reads what the model wrote; what is no JSON object becomes `{}` and a fault. */
export function readCall({ id, name, input }: ModelToolCall): ParsedCall {
  const call = { id, name: sanitizeName(name), args: {} };
  // Many models send nothing at all to a tool that takes nothing.
  if (input.trim() === '') return call;
  try {
    const read = JsonObject.safeParse(JSON.parse(input));
    if (read.success) return { ...call, args: read.data };
    return { ...call, error: `The input must be a JSON object: ${read.error.issues[0]?.message}` };
  } catch {
    return { ...call, error: `The input is not valid JSON: ${input.slice(0, SHOWN_INPUT)}` };
  }
}

/** The model sees its own calls again, and providers refuse names that no tool could have. */
function sanitizeName(name: string): string {
  return name.replace(/[^\w-]/g, '_').slice(0, NAME_LIMIT) || 'unknown';
}

/** Longest result one call may give, in characters. */
const RESULT_LIMIT = 100_000;
const ERROR_LIMIT = 500;

/** The JSON text of what a tool returned, whatever that was, bounded in length. */
export function toResultText(value: unknown): string {
  return shortenResult(stringify(value) ?? 'null', RESULT_LIMIT);
}

/** The JSON text that tells a model why a call failed: one short line, no stack. */
export function toErrorText(thrown: unknown): string {
  const line = getMessage(thrown).replace(/\s+/g, ' ').trim();
  const error = line.length > ERROR_LIMIT ? `${line.slice(0, ERROR_LIMIT)}…` : line;
  return JSON.stringify({ error: error.toWellFormed() || 'The tool failed.' });
}

/** Anything may be thrown, also what throws again when it is looked at. */
function getMessage(thrown: unknown): string {
  try {
    const message =
      typeof thrown === 'object' && thrown && 'message' in thrown ? thrown.message : thrown;
    return typeof message === 'string' ? message : '';
  } catch {
    return '';
  }
}

/** Cuts the JSON text of a result to `limit` characters; what comes out is JSON again and says so. */
export function shortenResult(text: string, limit: number): string {
  if (text.length <= limit) return text;
  const note = `Only the beginning is shown: the whole result has ${text.length} characters.`;
  const write = (length: number) =>
    JSON.stringify({ note, beginning: text.slice(0, length).toWellFormed() });
  let length = limit - write(0).length;
  let shortened = write(Math.max(0, length));
  // Quotes and line breaks grow when they are written as JSON once more.
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
    // Looking for cycles costs a walk up for every value, so it waits until one is found.
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

/** Notices a model that goes round in circles: the same tool with the same arguments, over and over. */
export class RepetitionGuard {
  /** By a hash of the call, since inputs may be large; as many as a turn makes calls. */
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

  /** Whether refusing has not helped either. */
  get isExhausted(): boolean {
    return this.refusals >= REFUSALS_LIMIT;
  }
}

/** Gives every tool call of a conversation an id of its own: some models repeat theirs or send none. */
export class CallIds {
  private readonly taken = new Set<string>();

  take(wanted: string): string {
    const id = wanted === '' || this.taken.has(wanted) ? createCallId() : wanted;
    this.taken.add(id);
    return id;
  }
}

/** Without dashes: some providers take at most 40 characters. */
function createCallId(): string {
  return `call_${randomUUID().replaceAll('-', '')}`;
}
