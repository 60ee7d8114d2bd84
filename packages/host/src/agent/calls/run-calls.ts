import { setImmediate as yieldToOthers } from 'node:timers/promises';
import type { AgentTool, FinishedCall } from '../agent.js';
import type { RepetitionGuard } from './repetition-guard.js';
import { failCall, runCall } from './run-call.js';
import type { WantedCall } from './wanted-call.js';

const STARTED_AT_ONCE = 4;

export interface CallBatch {
  readonly calls: readonly WantedCall[];
  readonly tools: ReadonlyMap<string, AgentTool>;
  readonly guard: RepetitionGuard;
  readonly signal: AbortSignal;
}

/** Runs calls side by side and gives each back as it finishes; every call given is given back. */
export async function* runCalls(batch: CallBatch): AsyncGenerator<FinishedCall> {
  const left = new AbortController();
  const signal = AbortSignal.any([batch.signal, left.signal]);
  const answer = (call: WantedCall) => answerCall(call, { ...batch, signal });
  let ready: Promise<void> | undefined;
  const running = new Map(
    batch.calls.map((call, i) => {
      // Checking an input takes time: many calls start a few at a time, and other requests have their turn in between.
      if (i > 0 && i % STARTED_AT_ONCE === 0)
        ready = (ready ?? Promise.resolve()).then(() => yieldToOthers());
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

async function answerCall(call: WantedCall, batch: CallBatch): Promise<FinishedCall> {
  const { tools, guard, signal } = batch;
  if (!guard.admits(call)) return failCall(call, REPEATED);
  if (call.fault !== undefined) return failCall(call, call.fault);
  const tool = tools.get(call.name);
  if (tool === undefined) return failCall(call, unknownTool(call.name, tools));
  return runCall(call, tool, signal);
}

const REPEATED =
  'Not run: this tool was called with the same input before, more than once. Use the results you have, change the input, or answer.';

function unknownTool(name: string, tools: ReadonlyMap<string, AgentTool>): string {
  const names = [...tools.keys()].join(', ') || 'none';
  return `There is no tool named ${name}. Tools: ${names}`;
}
