import type { AgentTool, FinishedCall } from '../agent.js';
import { inTime } from './in-time.js';
import { toFaultText, toResultText } from './result-text.js';
import type { WantedCall } from './wanted-call.js';

/** Runs one call to its end, its timeout or the turn's abort; never throws. */
export async function runCall(
  call: WantedCall,
  tool: AgentTool,
  turn: AbortSignal,
): Promise<FinishedCall> {
  try {
    const checked = tool.check(call.args);
    if ('faults' in checked) return failCall(call, schemaFault(checked.faults));
    const { id, name, args } = call;
    const { timeoutMs } = tool;
    const limit = { ms: timeoutMs, fault: timeoutFault(timeoutMs), signal: turn };
    const value = await inTime(limit, async (signal) => tool.run(checked.ok, { id, signal }));
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

function timeoutFault(timeoutMs: number): string {
  return `The tool did not finish within ${timeoutMs / 1000} s; whether it had an effect is unknown.`;
}

function schemaFault(faults: readonly string[]): string {
  return `The input does not fit the tool's schema: ${faults.join('; ')}`;
}
