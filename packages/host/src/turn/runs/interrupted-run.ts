import { randomUUID } from 'node:crypto';
import {
  ActionCallEvent,
  OracleError,
  ReasoningEvent,
  TextFrame,
  type ToolCall,
  ToolCallEvent,
  WarningFrame,
} from '@sibyl/protocol';
import type { RunEnding } from '../../store/runs/finish-run.js';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import { cacheInvalidation } from './cache-invalidation.js';
import { doneOf } from './done-frame.js';
import { createReport } from './run-outcome.js';

/** Ends a run that its process left behind, with as much of the answer as its log holds. */
export function endInterrupted(run: Run, frames: readonly Frame[]): RunEnding {
  const messageId = randomUUID();
  const content = dataOf(frames, 'message', TextFrame)
    .map((data) => data.content)
    .join('');
  const reasoning = dataOf(frames, 'reasoning', ReasoningEvent)
    .map((data) => data.reasoning)
    .join('');
  const toolCalls = toolCallsOf(frames);
  const status = 'interrupted';
  const report = createReport(
    dataOf(frames, 'warning', WarningFrame),
    new OracleError('host_stopping', { retryAfterSeconds: 5 }),
  );
  const last = [
    cacheInvalidation(run, messageId),
    doneOf({ runId: run.id, messageId, status, text: content }),
  ];
  return {
    status,
    message: {
      id: messageId,
      content,
      isComplete: false,
      ...(reasoning && { reasoning }),
      ...(toolCalls.length > 0 && { toolCalls }),
    },
    report,
    frames: last.map(({ event, data }, i) => ({
      seq: run.lastSeq + 1 + i,
      event,
      data: JSON.stringify(data),
    })),
  };
}

interface Parser<T> {
  safeParse(data: unknown): { readonly data?: T | undefined };
}

/** A frame of another version that cannot be read must not keep the run from being closed. */
function dataOf<T>(frames: readonly Frame[], event: string, schema: Parser<T>): T[] {
  return frames
    .filter((frame) => frame.event === event)
    .flatMap((frame) => schema.safeParse(JSON.parse(frame.data)).data ?? []);
}

/** A call that was still open when the process ended has no known outcome. */
function toolCallsOf(frames: readonly Frame[]): ToolCall[] {
  const byId = new Map<string, ToolCall>();
  for (const { data, event } of frames) {
    const told = toldCall(event, data);
    if (!told) continue;
    const { id, toolName: name, args, status, output } = told;
    byId.set(
      id,
      status === 'isRunning'
        ? { id, name, args, status: 'error', output: '"interrupted: the outcome is unknown"' }
        : { id, name, args, status, output: output ?? '""' },
    );
  }
  return [...byId.values()];
}

function toldCall(event: string, data: string) {
  if (event === 'tool_call') {
    const call = ToolCallEvent.safeParse(JSON.parse(data)).data;
    return call && { ...call, id: call.eventId };
  }
  if (event !== 'action_call') return undefined;
  const call = ActionCallEvent.safeParse(JSON.parse(data)).data;
  return call && { ...call, id: call.toolCallId };
}
