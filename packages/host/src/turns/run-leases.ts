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
import type { Logger } from 'pino';
import { type EventBus, endOf } from '../bus/event-bus.js';
import type { RunEnding } from '../store/runs/finish-run.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import { createReport } from './run-log.js';
import { cacheInvalidation, doneOf } from './run-recorder.js';

/** Well within the 30 s after which another process takes this one for dead. */
const BEAT_MS = 10_000;

/** Closes what dead processes left running, now and again, and tells others that this one lives. */
export async function keepRuns(
  runs: RunStore,
  events: EventBus,
  logger: Logger,
): Promise<() => void> {
  const closeLeftovers = async () => {
    for (const { run } of await runs.closeInterrupted(endInterrupted)) {
      logger.warn({ runId: run.id, did: run.owner }, 'run closed as interrupted');
      const { event, data: payload } = cacheInvalidation(run, run.messageId);
      events.publish(run, { event, payload, position: endOf(run.turn) });
    }
  };
  const beat = async () => {
    await runs.renewLeases();
    await closeLeftovers();
  };
  await closeLeftovers();
  const timer = setInterval(() => {
    // Without a stack: the store reports its outages itself.
    beat().catch((error) => {
      logger.warn({ reason: String(error) }, 'leases not renewed; trying again');
    });
  }, BEAT_MS);
  timer.unref();
  return () => clearInterval(timer);
}

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
