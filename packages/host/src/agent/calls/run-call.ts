import type { JsonObject } from '@sibyl/protocol';
import type { AgentTool, FinishedCall } from '../agent.js';
import { toFaultText, toResultText } from './result-text.js';
import { untilAborted } from './until-aborted.js';
import type { WantedCall } from './wanted-call.js';

/** Node fires timers beyond this at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Runs one call to its end, its timeout or the turn's abort; never throws. */
export async function runCall(
  call: WantedCall,
  tool: AgentTool,
  turn: AbortSignal,
): Promise<FinishedCall> {
  try {
    const checked = tool.check(call.args);
    if ('faults' in checked) return failCall(call, schemaFault(checked.faults));
    const value = await runInTime(call.id, tool, checked.ok, turn);
    const { id, name, args } = call;
    return { id, name, args, status: 'done', output: toResultText(value) };
  } catch (fault) {
    const reason = turn.aborted ? 'The call was aborted with the turn.' : fault;
    return failCall(call, reason);
  }
}

/** The call as it ends when it failed or was never made. */
export function failCall({ id, name, args }: WantedCall, fault: unknown): FinishedCall {
  return { id, name, args, status: 'error', output: toFaultText(fault) };
}

async function runInTime(
  id: string,
  tool: AgentTool,
  input: JsonObject,
  turn: AbortSignal,
): Promise<unknown> {
  const overdue = new AbortController();
  const timer = setTimeout(
    () => overdue.abort(new Error(timeoutFault(tool.timeoutMs))),
    Math.min(tool.timeoutMs, LONGEST_TIMER_MS),
  );
  const signal = AbortSignal.any([turn, overdue.signal]);
  try {
    return await untilAborted(async () => tool.run(input, { id, signal }), signal);
  } finally {
    clearTimeout(timer);
  }
}

function timeoutFault(timeoutMs: number): string {
  return `The tool did not finish within ${timeoutMs / 1000} s; whether it had an effect is unknown.`;
}

function schemaFault(faults: readonly string[]): string {
  return `The input does not fit the tool's schema: ${faults.join('; ')}`;
}
