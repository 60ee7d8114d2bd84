import { OracleError, type ReplyPart } from '@sibyl/protocol';
import { abortable, LruMap, textBytes } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import { answerMessage } from '../agent/run-agent.js';
import { PausedError } from '../agent/steps.js';
import type { RunGrants } from '../auth/run-grants.js';
import { type EventBus, endOfRun, toPosition } from '../bus/event-bus.js';
import { toModelCause } from '../models/failure-cause.js';
import { ModelError } from '../models/model.js';
import type { Metrics } from '../observability/metrics.js';
import {
  ActiveSpan,
  Scope,
  type SpanExporter,
  TurnTrace,
  toErrorCode,
} from '../observability/spans.js';
import type { Run } from '../store/runs/run.js';
import { UNTITLED } from '../store/session-store.js';
import { classifyStoreError, isStoreError, repeatRead } from '../store/store-errors.js';
import type { UsageStore } from '../store/usage-store.js';
import { kindsByStatus, readSteps } from './closing-runs.js';
import type { LiveRun, RunOutcome } from './run-log.js';
import { buildCacheInvalidation } from './run-recorder.js';
import type { Titles } from './titles.js';
import { toStoredRequest, withToolChoice } from './turn-request.js';
import type { TurnJob, TurnSetup } from './turn-setup.js';
import { type TurnError, TurnWriter } from './turn-writer.js';

interface TurnRunnerDeps {
  readonly setup: TurnSetup;
  readonly titles: Titles;
  readonly grants: Pick<RunGrants, 'hold'>;
  readonly events: EventBus;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Unset if spans are not exported. */
  readonly exporter?: SpanExporter | undefined;
  readonly hostId: string;
  /** The name of the oracle. */
  readonly agentName: string;
  /** The id of the model that answers by default. */
  readonly mainModel: string;
  readonly usage: Pick<UsageStore, 'replace'>;
  /** By the clock of the database. */
  readonly now: () => number;
  readonly limits: {
    /** Milliseconds that one attempt may take. */
    readonly ms: number;
    /** Paused turns of one user. */
    readonly paused: number;
    /** Milliseconds that a turn waits for the store before it begins. */
    readonly storeWaitMs: number;
  };
}

const LEFT_OUT_BYTES = 1024 ** 2;

/** Executes turns: runs the agent, stores the outcome, and settles the cost. */
export class TurnRunner {
  /** The run that warned, by session and why a tool was left out of it: pages declare the same tools with every message. */
  private readonly leftOut = new LruMap<string, string>({
    maxBytes: LEFT_OUT_BYTES,
    measure: (id, key) => textBytes(key) + textBytes(id),
  });

  constructor(private readonly deps: TurnRunnerDeps) {}

  /** Runs a turn in its own scope: its log lines have its ids, and what it does are its spans. */
  async run(job: TurnJob): Promise<RunOutcome> {
    const { run } = job.live;
    const { runId, requestId, owner: userId, sessionId, traceparent } = run;
    const { exporter } = this.deps;
    const trace = new TurnTrace();
    const scope = new Scope({ requestId, runId, sessionId, traceparent, exporter, trace });
    const { hostId, agentName: agent, mainModel } = this.deps;
    const model = job.request.message.model ?? mainModel;
    const facts = {
      ...{ operation: 'invoke_agent', agent, model, conversationId: sessionId },
      ...{ runId, userId, sessionId, hostId },
    };
    const span = new ActiveSpan(scope, { kind: 'turn', name: agent, facts });
    let error: string | undefined;
    try {
      const outcome = await span.run(() => this.runTurn(job, trace));
      if (outcome.status !== 'finished') error = outcome.error?.code ?? outcome.status;
      return outcome;
    } catch (thrown) {
      error = toErrorCode(thrown);
      throw thrown;
    } finally {
      span.end({ error });
    }
  }

  private async runTurn(job: TurnJob, trace: TurnTrace): Promise<RunOutcome> {
    let naming: Promise<void> | undefined;
    try {
      this.announce(job, 'question');
      const outcome = await this.execute(job, trace);
      this.announce(job, 'answer');
      naming = this.nameSession(job, outcome)?.then(() => this.recordTitle(job));
      return outcome;
    } finally {
      // The title is part of the turn's cost. Neither is awaited.
      void Promise.resolve(naming).then(() => job.account.settle());
    }
  }

  /** Clients that show the session have not sent the message of a turn that runs under a delegation. */
  private announce({ live: { run }, request }: TurnJob, stored: 'question' | 'answer'): void {
    if (!request.permission) return;
    const { event, data: payload } = buildCacheInvalidation(run);
    const position = stored === 'question' ? toPosition(run, 0) : endOfRun(run);
    this.deps.events.publish(run, { event, payload, position });
  }

  private async execute(job: TurnJob, trace: TurnTrace): Promise<RunOutcome> {
    const { live, recorder, account, progress } = job;
    const writer = new TurnWriter(live.run, recorder, progress && readSteps(progress.steps));
    const result = await this.answer(job, writer, trace);
    const paused =
      result instanceof PausedError ? await this.pause(job, writer, result) : undefined;
    if (paused && 'outcome' in paused) return paused.outcome;
    const failure = result instanceof PausedError ? paused?.failure : result;
    const status = !failure ? 'finished' : (live.cancelReason ?? 'failed');
    const shown = status === 'failed' ? failure : undefined;
    const error = status === 'finished' ? undefined : (shown?.error ?? live.error);
    const cause = shown?.cause ?? findCause(status, live.error);
    this.measure(job, trace, { status, kind: shown?.kind ?? '', cause });
    const { firstTextMs } = trace;
    const ended = { cause, firstTextMs, spans: trace.toJson() };
    return writer.end({ status, usage: account.total, failure: shown, error, trace: ended });
  }

  private measure(
    { live: { run }, request }: TurnJob,
    { now, firstTextMs }: TurnTrace,
    { status, kind, cause }: { status: string; kind: string; cause: string | undefined },
  ): void {
    const { metrics, mainModel } = this.deps;
    metrics.count('sibyl_turns_total', { status, kind });
    metrics.observe('sibyl_turn_seconds', { status }, now / 1000);
    if (cause) metrics.count('sibyl_turn_failures_total', { cause });
    if (firstTextMs === undefined) return;
    const waitedMs = Math.max(0, (run.startedAt ?? run.createdAt) - run.createdAt);
    const model = request.message.model ?? mainModel;
    metrics.observe(
      'sibyl_time_to_first_token_seconds',
      { model },
      (waitedMs + firstTextMs) / 1000,
    );
  }

  /** Pauses the turn, or returns why it has to fail instead. */
  private async pause(
    { live, request, account }: TurnJob,
    writer: TurnWriter,
    { interrupts }: PausedError,
  ): Promise<{ outcome: RunOutcome } | { failure: TurnError }> {
    const { limits } = this.deps;
    const callsClient = interrupts.some(({ kind }) => kind === 'tool_call');
    const outcome = await writer.pause({
      interrupts,
      request: toStoredRequest(callsClient ? withToolChoice(request) : request),
      limit: limits.paused,
      usage: account.total,
      now: this.deps.now(),
    });
    if (outcome) {
      this.deps.metrics.count('sibyl_turns_total', { status: 'paused', kind: '' });
      return { outcome };
    }
    const error = new OracleError('too_many_paused', { retryAfterSeconds: RETRY_SECONDS });
    return { failure: this.reportError(error, live) };
  }

  private nameSession({ request, session, account }: TurnJob, { status, text }: RunOutcome) {
    if (status !== 'finished' || session.title !== UNTITLED) return undefined;
    const exchange = { question: request.message.message, answer: text };
    return this.deps.titles.nameSession(session, exchange, account);
  }

  /** The title was generated after the usage of the run was stored. */
  private async recordTitle({ live: { run }, account }: TurnJob): Promise<void> {
    await this.deps.usage.replace(run, account.used).catch((err) => {
      this.deps.logger.warn({ err, runId: run.runId }, 'usage of a title not stored');
    });
  }

  private isRepeated({ runId, sessionId }: Run, code: string, message: string): boolean {
    if (code !== 'tool_left_out') return false;
    const key = `${sessionId} ${message}`;
    const first = this.leftOut.get(key) ?? runId;
    this.leftOut.set(key, first);
    return first !== runId;
  }

  /** Runs the agent; returns the error that ended it early, if any. */
  private async answer(
    job: TurnJob,
    writer: TurnWriter,
    trace: TurnTrace,
  ): Promise<TurnError | PausedError | undefined> {
    const { live } = job;
    let release = () => {};
    const timer = setTimeout(() => live.fail(this.createTimeoutError()), this.deps.limits.ms);
    try {
      const warn = (code: string, message: string) => {
        if (!this.isRepeated(live.run, code, message)) writer.warn(code, message);
      };
      for (const { code, message } of job.request.warnings ?? []) warn(code, message);
      release = await this.holdPermission(job);
      const events = { write: (part: ReplyPart) => writer.emit(part) };
      const request = await abortable(
        () => this.deps.setup.prepare({ ...job, events }, warn),
        live.signal,
      );
      let hasText = false;
      for await (const part of answerMessage(request)) {
        if (!hasText && part.type === 'text') {
          hasText = true;
          trace.markFirstText();
        }
        writer.write(part);
      }
      return undefined;
    } catch (error) {
      if (error instanceof PausedError && !live.signal.aborted) return error;
      return this.reportError(live.error ?? error, live);
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  /** Aborts the turn when the delegation that it runs under expires; throws if it is not valid. */
  private async holdPermission({ live, request: { permission } }: TurnJob): Promise<() => void> {
    if (!permission) return () => {};
    const { grants, limits } = this.deps;
    return repeatRead(() => grants.hold(permission, (error) => live.cancel('aborted', error)), {
      waitMs: limits.storeWaitMs,
      signal: live.signal,
    });
  }

  private createTimeoutError(): OracleError {
    const message = `The turn was stopped after ${this.deps.limits.ms / 1000} seconds, the longest that one turn may take on this host.`;
    return new OracleError('turn_too_long', { message });
  }

  /** Logs the error as well: a streaming client has already received status 200. */
  private reportError(error: unknown, { run, cancelReason }: LiveRun): TurnError {
    const { logger } = this.deps;
    const about = { did: run.owner };
    const failure = toTurnError(error);
    const { kind, cause } = failure ?? {};
    if (!cancelReason && failure) logger.warn({ ...about, kind, cause }, failure.message);
    if (!cancelReason && !failure) logger.error({ ...about, err: error }, 'turn failed');
    return failure ?? createUnexpectedError();
  }
}

const RETRY_SECONDS = 5;

/** Describes an error to the user; undefined if it is a bug of the host. */
function toTurnError(error: unknown): TurnError | undefined {
  if (error instanceof ModelError) return fromModelError(error);
  if (error instanceof OracleError) return fromOracleError(error);
  if (!isStoreError(error)) return undefined;
  return fromOracleError(
    new OracleError('store_unavailable', { retryAfterSeconds: RETRY_SECONDS, cause: error }),
  );
}

/** Hides the details of a bug from the user. */
function createUnexpectedError(): TurnError {
  const error = new OracleError('internal_error', { message: 'The turn failed within the host' });
  return { message: error.message, kind: 'unknown', retryable: true, error, cause: error.code };
}

function fromModelError(failure: ModelError): TurnError {
  const { message, kind, retryable, retryAfterSeconds = RETRY_SECONDS } = failure;
  const error = new OracleError('model_unavailable', {
    message,
    // No Retry-After for a call that would fail again.
    ...(retryable && { retryAfterSeconds }),
  });
  return { message, kind, retryable, error, cause: toModelCause(failure) };
}

/** An error of a gate, a middleware, a limit or the store. */
function fromOracleError(error: OracleError): TurnError {
  const { status, message } = error;
  const retryable = status === 429 || status === 503;
  const kind = kindsByStatus[status] ?? 'unknown';
  return { message, kind, retryable, error, cause: toCause(error) };
}

/** A full disk is the one outage of the store that has its own remedy. */
const toCause = ({ code, cause }: OracleError): string =>
  classifyStoreError(cause) === 'full' ? 'disk_full' : code;

/** Why the host ended a turn; users may interrupt their own turns. */
function findCause(status: string, error: OracleError | undefined): string | undefined {
  if (status !== 'interrupted' || !error || error.code === 'turn_interrupted') return undefined;
  return toCause(error);
}
