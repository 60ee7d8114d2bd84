import { randomUUID } from 'node:crypto';
import { OracleError, WarningFrame } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { type EventBus, endOfTurn } from '../bus/event-bus.js';
import type { RunEnding } from '../store/runs/finish-run.js';
import type { Frame } from '../store/runs/frames.js';
import type { Run } from '../store/runs/run.js';
import type { RunStore } from '../store/runs/run-store.js';
import { MessageParts } from './message-parts.js';
import { createReport } from './run-log.js';
import { buildCacheInvalidation, buildDoneFrame } from './run-recorder.js';

/** Well within the 30 s after which other processes consider this one dead. */
const RENEW_MS = 10_000;

/** Closes runs that dead processes left behind, now and periodically, and renews the leases of this process. */
export async function startLeaseLoop(
  runs: RunStore,
  events: EventBus,
  logger: Logger,
): Promise<() => void> {
  const closeLeftovers = async () => {
    for (const { run } of await runs.closeInterrupted(endInterrupted)) {
      logger.warn({ runId: run.id, did: run.owner }, 'run closed as interrupted');
      const { event, data: payload } = buildCacheInvalidation(run, run.messageId);
      events.publish(run, { event, payload, position: endOfTurn(run.turn) });
    }
  };
  const renew = async () => {
    await runs.renewLeases();
    await closeLeftovers();
  };
  await closeLeftovers();
  const timer = setInterval(() => {
    // Without a stack: the store logs its outages itself.
    renew().catch((error) => {
      logger.warn({ reason: String(error) }, 'leases not renewed; trying again');
    });
  }, RENEW_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Ends a run of a dead process with the part of the answer that its log contains. */
export function endInterrupted(run: Run, frames: readonly Frame[]): RunEnding {
  const messageId = run.messageId ?? randomUUID();
  const message = readParts(frames).toMessage();
  const status = 'interrupted';
  const report = createReport(
    parseFrames(frames, 'warning', WarningFrame),
    new OracleError('host_stopping', { retryAfterSeconds: 5 }),
  );
  const last = [
    buildCacheInvalidation(run, messageId),
    buildDoneFrame({ runId: run.id, messageId, status, text: message.content }),
  ];
  return {
    status,
    message: { id: messageId, ...message, isComplete: false },
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

/** Skips frames of other versions that cannot be parsed, so that the run can be closed. */
function parseFrames<T>(frames: readonly Frame[], event: string, schema: Parser<T>): T[] {
  return frames
    .filter((frame) => frame.event === event)
    .flatMap((frame) => schema.safeParse(JSON.parse(frame.data)).data ?? []);
}

/** Collects what the log contains of the answer. */
function readParts(frames: readonly Frame[]): MessageParts {
  const parts = new MessageParts();
  for (const { event, data } of frames) parts.addFrame(event, JSON.parse(data));
  return parts;
}
