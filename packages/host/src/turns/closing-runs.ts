import { type ErrorKind, OracleError, type ReplyPart, WarningFrame } from '@sibyl/protocol';
import { PARAGRAPH } from '../agent/conversation.js';
import {
  type AgentStep,
  type AssistantMessage,
  buildCallPath,
  type InterruptAnswer,
} from '../agent/steps.js';
import type { Frame } from '../store/runs/frames.js';
import type { Interrupt } from '../store/runs/interrupts.js';
import type { Run, RunEnding } from '../store/runs/run.js';
import { type RunStore, WITHDRAWN, type WithdrawResult } from '../store/runs/run-store.js';
import type { RunKey } from '../store/schema/runs.js';
import { confirmWrite } from './idempotent-starts.js';
import { MessageParts } from './message-parts.js';
import { createReport } from './run-log.js';
import {
  buildCacheInvalidation,
  buildDoneFrame,
  buildResumedFrame,
  buildRunFrame,
} from './run-recorder.js';
import type { TurnProgress } from './turn-setup.js';

/** More frames than a host can have shown before it stored them. */
const FRAME_GAP = 1_000_000;

/** The last frames of a dead host's run that another attempt continues: readers keep `partial`. */
export function buildHandover(run: Run, partial: string): Frame[] {
  const { runId, messageId } = run;
  const done = buildDoneFrame({ runId, messageId, status: 'interrupted', text: partial });
  return toFrames([buildResumedFrame(run, partial), done], run.lastSeq + FRAME_GAP);
}

const toFrames = (parts: readonly ReplyPart[], from: number): Frame[] =>
  parts.map(({ event, data }, i) => ({ seq: from + i, event, data: JSON.stringify(data) }));

/** Takes back a message that waits, or returns why not. */
export function storeWithdrawal(runs: RunStore, key: RunKey): Promise<WithdrawResult> {
  return runs.withdraw(key).catch((error) =>
    confirmWrite(error, async () => {
      const run = await runs.find(key);
      return run?.report.error?.code === WITHDRAWN ? { state: 'withdrawn', run } : undefined;
    }),
  );
}

export const kindsByStatus: Readonly<Record<number, ErrorKind>> = {
  401: 'auth',
  402: 'billing',
  403: 'auth',
  422: 'server',
  429: 'rate_limit',
  503: 'server',
};

/** Ends a run that never began, with the reason. */
export function endUnanswered(run: Run, error: OracleError): RunEnding {
  const { code, message } = error;
  const { runId, messageId, sessionId, requestId, lastSeq } = run;
  const timestamp = new Date().toISOString();
  const isRetryable = error.status === 429 || error.status === 503;
  const kind = kindsByStatus[error.status] ?? 'server';
  const data = {
    error: message,
    kind,
    code,
    retryable: isRetryable,
    sessionId,
    requestId,
    timestamp,
  };
  const done = buildDoneFrame({ runId, messageId, status: 'failed', text: '' });
  return {
    status: 'failed',
    message: { content: '', isComplete: false, error: { status: 'failed', code, message, kind } },
    error: { kind, message },
    report: createReport([], error),
    trace: { cause: code },
    frames: toFrames([{ event: 'error', data }, done], lastSeq + 1),
  };
}

/** Ends a run of a dead host with the part of the answer that its log contains. */
export function endInterrupted(run: Run, frames: readonly Frame[]): RunEnding {
  const { messageId } = run;
  const message = readParts(frames).toMessage();
  const status = run.cancelReason ?? 'interrupted';
  const error = new OracleError('host_stopping', {
    message: `${INTERRUPTED} Try again.`,
    retryAfterSeconds: 5,
  });
  const warnings = parseFrames(frames, 'warning', WarningFrame);
  const start = buildResumedFrame(run, message.content);
  const last = [
    start,
    buildCacheInvalidation(run, messageId),
    buildDoneFrame({ runId: run.runId, messageId, status, text: message.content }),
  ];
  return {
    status,
    message: {
      ...message,
      isComplete: false,
      error: { status, code: error.code, message: INTERRUPTED },
    },
    report: createReport(warnings, status === 'interrupted' ? error : undefined),
    ...(status === 'interrupted' && { trace: { cause: 'host_lost' } }),
    frames: toFrames(last, run.lastSeq + FRAME_GAP),
  };
}

const INTERRUPTED = 'The host stopped before the answer was complete.';

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

/** Collects the answer of earlier attempts from their steps: what came after the last step is not part of it. */
export function readSteps(steps: readonly AgentStep[]): MessageParts {
  const parts = new MessageParts();
  // Sub-agents are not part of the answer.
  for (const step of steps.filter(({ path }) => path === '')) {
    if (step.type === 'result') parts.endCall(step.call);
    if (step.type === 'model') addModelStep(parts, step.message);
  }
  return parts;
}

/**
 * Whether a call of a running turn was answered or approved and has not run since: it is stored that it runs before it
 * does.
 */
export function hasUnusedAnswer(steps: readonly AgentStep[]): boolean {
  const waiting = new Set<string>();
  for (const step of steps) {
    if (step.type === 'interrupt') waiting.add(buildCallPath(step.path, step.callId));
    if (step.type === 'retry') waiting.delete(buildCallPath(step.path, step.callId));
    if (step.type === 'result') waiting.delete(buildCallPath(step.path, step.call.id));
  }
  return waiting.size > 0;
}

function addModelStep(parts: MessageParts, message: AssistantMessage): void {
  const { text, reasoning, toolCalls = [] } = message;
  if (reasoning) parts.addReasoning(reasoning);
  if (text) parts.addText(parts.content === '' ? text : PARAGRAPH + text);
  for (const { id, name, input } of toolCalls)
    parts.startCall({ id, name, args: JSON.parse(input) });
}

/** What earlier attempts of the turn of a run have done, if there are any. */
export async function readProgress(runs: RunStore, run: Run): Promise<TurnProgress | undefined> {
  if (run.attempt === 1) return undefined;
  const [steps, interrupts] = await Promise.all([runs.steps(run), runs.interrupts(run)]);
  return { steps: steps as readonly AgentStep[], answers: new Map(interrupts.flatMap(toAnswer)) };
}

/** Builds the first frame of a run; readers of earlier attempts keep what they have done. */
export const buildFirstFrame = (run: Run, progress: TurnProgress | undefined) =>
  progress ? buildResumedFrame(run, readSteps(progress.steps).content) : buildRunFrame(run);

/** An open interrupt has no answer. */
function toAnswer({ path, status, value }: Interrupt): [string, InterruptAnswer][] {
  switch (status) {
    case 'open':
      return [];
    case 'answered':
      return [[path, { status, value }]];
    default:
      return [[path, { status }]];
  }
}
