import type { RunPermission } from '@sibyl/plugin-kit';
import { type ErrorKind, OracleError, type ReplyPart, type ReplyWarning } from '@sibyl/protocol';
import { abortable, LruMap, textBytes } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { AgentPart } from '../../agent/agent.js';
import { toInterrupt } from '../../agent/call-interrupts.js';
import { answerMessage } from '../../agent/run-agent.js';
import { type ApprovalRequest, PausedError, type PendingInterrupt } from '../../agent/steps.js';
import type { RunGrants } from '../../auth/run-grants.js';
import { type EventBus, endOfRun, type ServerEvent, toPosition } from '../../bus/event-bus.js';
import type { Metrics } from '../../observability/metrics.js';
import {
  ActiveSpan,
  Scope,
  type SpanExporter,
  TurnTrace,
  toErrorCode,
} from '../../observability/spans.js';
import type { NewInterrupt } from '../../store/runs/pauses.js';
import type { EndStatus, Run, RunEnd } from '../../store/runs/run.js';
import type { TokenUsage } from '../../store/schema/runs.js';
import { UNTITLED } from '../../store/session-store.js';
import { repeatRead } from '../../store/store-errors.js';
import type { UsageStore } from '../../store/usage-store.js';
import { toStoredRequest, withToolChoice } from '../turn-request.js';
import type { ActiveRun } from './active-run.js';
import { MessageParts } from './message-parts.js';
import {
  createReport,
  createUnexpectedError,
  findCause,
  MAX_WARNINGS,
  type RunOutcome,
  readError,
  type TurnError,
  toTurnError,
} from './run-end.js';
import { buildCacheInvalidation, buildDoneFrame } from './run-log.js';
import type { RunRecorder } from './run-recorder.js';
import type { Titles } from './titles.js';
import { readSteps } from './turn-progress.js';
import type { TurnSetup } from './turn-setup.js';

interface RunExecutorDeps {
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

/** Executes runs: runs the agent, stores the outcome, and settles the cost. */
export class RunExecutor {
  /** The run that warned, by session and why a tool was left out of it: pages declare the same tools with every message. */
  private readonly leftOut = new LruMap<string, string>({
    maxBytes: LEFT_OUT_BYTES,
    measure: (id, key) => textBytes(key) + textBytes(id),
  });

  constructor(private readonly deps: RunExecutorDeps) {}

  /** Executes a run in its own scope: its log lines have its ids, and what it does are its spans. */
  async execute(active: ActiveRun): Promise<RunOutcome> {
    const { run, request } = active;
    const { runId, requestId, owner: userId, sessionId, traceparent } = run;
    const { exporter } = this.deps;
    const trace = new TurnTrace();
    const scope = new Scope({ requestId, runId, sessionId, traceparent, exporter, trace });
    const { hostId, agentName: agent, mainModel } = this.deps;
    const model = request.message.model ?? mainModel;
    const facts = {
      ...{ operation: 'invoke_agent', agent, model, conversationId: sessionId },
      ...{ runId, userId, sessionId, hostId },
    };
    const span = new ActiveSpan(scope, { kind: 'turn', name: agent, facts });
    let error: string | undefined;
    try {
      const outcome = await span.run(() => this.run(active, trace));
      if (outcome.status !== 'finished') error = outcome.error?.code ?? outcome.status;
      return outcome;
    } catch (thrown) {
      error = toErrorCode(thrown);
      throw thrown;
    } finally {
      span.end({ error });
    }
  }

  private async run(active: ActiveRun, trace: TurnTrace): Promise<RunOutcome> {
    let outcome: RunOutcome | undefined;
    try {
      this.announce(active, 'question');
      outcome = await this.answer(active, trace);
      this.announce(active, 'answer');
      return outcome;
    } finally {
      // It is not awaited.
      void this.settle(active, outcome);
    }
  }

  /** Clients that show the session have not sent the message of a turn that runs under a delegation. */
  private announce({ run, request }: ActiveRun, stored: 'question' | 'answer'): void {
    if (!request.permission) return;
    const { event, data: payload } = buildCacheInvalidation(run);
    const position = stored === 'question' ? toPosition(run, 0) : endOfRun(run);
    this.deps.events.publish(run, { event, payload, position });
  }

  /** Names the session after its first exchange, which is part of the cost of the turn. */
  private async settle(
    { run, request, session, account }: ActiveRun,
    outcome: RunOutcome | undefined,
  ): Promise<void> {
    if (outcome?.status === 'finished' && session.title === UNTITLED) {
      const exchange = { question: request.message.message, answer: outcome.text };
      await this.deps.titles.nameSession(session, exchange, account);
      // The usage of the run was stored before.
      await this.deps.usage.replace(run, account.used).catch((err) => {
        this.deps.logger.warn({ err, runId: run.runId }, 'usage of a title not stored');
      });
    }
    await account.settle();
  }

  /** Writes the answer, and stores how the run ended or paused. */
  private async answer(active: ActiveRun, trace: TurnTrace): Promise<RunOutcome> {
    const { run, recorder, account, progress } = active;
    const writer = new RunWriter(run, recorder, progress && readSteps(progress.steps));
    let failure = await this.runAgent(active, writer, trace);
    if (failure instanceof PausedError) {
      const outcome = await this.pause(active, writer, failure);
      if (outcome) return outcome;
      const tooMany = new OracleError('too_many_paused', { retryAfterSeconds: RETRY_SECONDS });
      failure = this.reportError(tooMany, active);
    }
    const status = !failure ? 'finished' : (active.cancelReason ?? 'failed');
    const shown = status === 'failed' ? failure : undefined;
    const error = status === 'finished' ? undefined : (shown?.error ?? active.error);
    const cause = shown?.cause ?? findCause(status, active.error);
    this.measure(active, trace, { status, kind: shown?.kind ?? '', cause });
    const { firstTextMs } = trace;
    const ended = { cause, firstTextMs, spans: trace.toJson() };
    return writer.end({ status, usage: account.total, failure: shown, error, trace: ended });
  }

  private measure(
    { run, request }: ActiveRun,
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

  /** Pauses the run; undefined if its user has too many paused runs, or it was canceled meanwhile. */
  private async pause(
    { request, account }: ActiveRun,
    writer: RunWriter,
    { interrupts }: PausedError,
  ): Promise<RunOutcome | undefined> {
    const callsClient = interrupts.some(({ kind }) => kind === 'tool_call');
    const outcome = await writer.pause({
      interrupts,
      request: toStoredRequest(callsClient ? withToolChoice(request) : request),
      limit: this.deps.limits.paused,
      usage: account.total,
      now: this.deps.now(),
    });
    if (outcome) this.deps.metrics.count('sibyl_turns_total', { status: 'paused', kind: '' });
    return outcome;
  }

  /** Runs the agent; returns why it ended early, if it did. */
  private async runAgent(
    active: ActiveRun,
    writer: RunWriter,
    trace: TurnTrace,
  ): Promise<TurnError | PausedError | undefined> {
    const { run, request, signal } = active;
    let release = () => {};
    const timer = setTimeout(() => active.fail(this.createTimeoutError()), this.deps.limits.ms);
    try {
      const warn = (code: string, message: string) => {
        if (!this.isRepeated(run, code, message)) writer.warn(code, message);
      };
      for (const { code, message } of request.warnings ?? []) warn(code, message);
      if (request.permission) release = await this.holdPermission(active, request.permission);
      const emit = (part: ReplyPart) => writer.emit(part);
      const asked = await abortable(() => this.deps.setup.prepare(active, { warn, emit }), signal);
      for await (const part of answerMessage(asked)) {
        if (part.type === 'text') trace.markFirstText();
        writer.write(part);
      }
      return undefined;
    } catch (error) {
      if (error instanceof PausedError && !signal.aborted) return error;
      return this.reportError(active.error ?? error, active);
    } finally {
      clearTimeout(timer);
      release();
    }
  }

  /** Aborts the run when the delegation that it runs under expires; throws if it is not valid. */
  private holdPermission(active: ActiveRun, permission: RunPermission): Promise<() => void> {
    const { grants, limits } = this.deps;
    return repeatRead(() => grants.hold(permission, (error) => active.cancel('aborted', error)), {
      waitMs: limits.storeWaitMs,
      signal: active.signal,
    });
  }

  private isRepeated({ runId, sessionId }: Run, code: string, message: string): boolean {
    if (code !== 'tool_left_out') return false;
    const key = `${sessionId} ${message}`;
    const first = this.leftOut.get(key) ?? runId;
    this.leftOut.set(key, first);
    return first !== runId;
  }

  private createTimeoutError(): OracleError {
    const message = `The turn was stopped after ${this.deps.limits.ms / 1000} seconds, the longest that one turn may take on this host.`;
    return new OracleError('turn_too_long', { message });
  }

  /** Logs the error as well: a streaming client has already received status 200. */
  private reportError(error: unknown, { run, cancelReason }: ActiveRun): TurnError {
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

/** Converts the agent's parts to frames of the run and collects the message to store. */
export class RunWriter {
  private readonly run: Run;
  private readonly recorder: RunRecorder;
  private readonly ids: { readonly sessionId: string; readonly requestId: string };
  private readonly warnings: ReplyWarning[] = [];
  private isReasoning = false;

  /** `parts`: the answer of earlier attempts. */
  constructor(
    run: Run,
    recorder: RunRecorder,
    private readonly parts = new MessageParts(),
  ) {
    this.run = run;
    this.recorder = recorder;
    this.ids = { sessionId: run.sessionId, requestId: run.requestId };
  }

  write(part: AgentPart): void {
    if (part.type !== 'reasoning') this.endReasoning();
    switch (part.type) {
      case 'text':
        this.writeText(part.text);
        break;
      case 'reasoning':
        this.writeReasoning(part.text);
        break;
      case 'tool-start':
        this.writeToolStart(part);
        break;
      case 'tool-end':
        this.writeToolEnd(part);
        break;
      case 'warning':
        this.warn(part.code, part.message);
        break;
      default:
        part satisfies never;
    }
  }

  /** Reports something that was left out; the turn continues. */
  warn(code: string, message: string): void {
    const data = { code, message, ...this.ids, timestamp: now() };
    if (this.warnings.length < MAX_WARNINGS) this.warnings.push({ code, message });
    this.recorder.write({ event: 'warning', data });
  }

  /** Writes an event of a plugin; a component or citation becomes part of the message. */
  emit(part: ReplyPart): ServerEvent | undefined {
    const written = this.recorder.write(part);
    // A copy, because the plugin may change its object later.
    if (part.event === 'citation' || (written && part.event === 'render_component'))
      this.parts.addFrame(part.event, JSON.parse(JSON.stringify(part.data)));
    return written;
  }

  /** Ends the run: stores its message and its last frames together. */
  async end({
    status,
    usage,
    failure,
    error,
    trace,
  }: {
    readonly status: EndStatus;
    readonly usage: TokenUsage;
    readonly failure: TurnError | undefined;
    /** Why the answer is missing or incomplete. */
    readonly error: OracleError | undefined;
    readonly trace: RunEnd['trace'];
  }): Promise<RunOutcome> {
    this.endReasoning();
    if (failure) this.writeError(failure);
    const { runId, messageId } = this.run;
    const text = this.parts.content;
    const report = { ...createReport(this.warnings, error), cost: usage.cost };
    const run = await this.recorder.end(
      {
        status,
        usage,
        report,
        trace,
        message: this.buildMessage(status, { error, kind: failure?.kind }),
        ...(failure && { error: { kind: failure.kind, message: failure.message } }),
      },
      buildDoneFrame({ runId, messageId, status, text, usage }),
    );
    // If storing takes too long, the run is stored as failed.
    const stored = run.status === 'failed' ? 'failed' : status;
    const { warnings = [] } = report;
    const why = error ?? readError(run);
    return { status: stored, messageId, text, warnings, usage, error: why };
  }

  /** Pauses the run until its interrupts have ended; undefined if the user has too many paused runs. */
  async pause({
    interrupts,
    request,
    limit,
    usage,
    now: from,
  }: {
    readonly interrupts: readonly PendingInterrupt[];
    /** For the next attempt. */
    readonly request: unknown;
    /** Paused runs of one user. */
    readonly limit: number;
    readonly usage: TokenUsage;
    /** By the clock of the database, with which answers expire. */
    readonly now: number;
  }): Promise<RunOutcome | undefined> {
    this.endReasoning();
    const { runId, messageId } = this.run;
    const status = 'interrupted';
    const text = this.parts.content;
    const questions = await Promise.all(
      interrupts.map((interrupt) => toInterrupt(interrupt, this.run)),
    );
    const pending = questions.map(({ id, kind }) => ({ id, kind }));
    const report = { ...createReport(this.warnings), pending, cost: usage?.cost };
    this.parts.leaveCalls(new Set(interrupts.map(toMainCall)), NOT_ANSWERED);
    const message = { ...this.parts.toMessage(), isComplete: false };
    const paused = await this.recorder.pause(
      {
        interrupts: questions,
        request,
        limit,
        end: { usage, report, message },
      },
      [
        ...questions.flatMap((question, i) =>
          this.buildApprovalFrame(question, interrupts[i]?.approval, from),
        ),
        buildDoneFrame({ runId, messageId, status, text, pending, usage }),
      ],
    );
    if (!paused) return undefined;
    const { warnings = [] } = report;
    return { status, messageId, text, warnings, usage, pending };
  }

  private buildApprovalFrame(
    { id: approvalId, callId: toolCallId, expiresInMs }: NewInterrupt,
    approval: ApprovalRequest | undefined,
    from: number,
  ): ReplyPart[] {
    if (!approval) return [];
    const { tool: toolName, plugin, args, argsHash, requiredBy } = approval;
    const expiresAt = new Date(from + expiresInMs).toISOString();
    const call = { toolCallId, toolName, plugin, args, argsHash, requiredBy };
    const times = { expiresAt, timestamp: now() };
    const data = { ...this.ids, runId: this.run.runId, approvalId, ...call, ...times };
    return [{ event: 'approval_request', data }];
  }

  private buildMessage(
    status: EndStatus,
    { error, kind }: { error: OracleError | undefined; kind: ErrorKind | undefined },
  ): RunEnd['message'] {
    const message = this.parts.toMessage();
    if (status === 'finished') return { ...message, isComplete: true };
    const { code, message: text } = error ?? reasons[status];
    return {
      ...message,
      isComplete: false,
      error: { status, code, message: text, ...(kind && { kind }) },
    };
  }

  private writeText(content: string): void {
    this.parts.addText(content);
    this.recorder.write({ event: 'message', data: { content, timestamp: now() } });
  }

  /** The frame of an action's start is written when the page is called, after its input was validated. */
  private writeToolStart({
    id,
    name,
    args,
    event,
  }: Extract<AgentPart, { type: 'tool-start' }>): void {
    this.parts.startCall({ id, name, args });
    if (event === 'action_call') return;
    this.recorder.write({
      event: 'tool_call',
      data: { ...this.ids, eventId: id, toolName: name, args, status: 'isRunning' },
    });
  }

  private writeReasoning(text: string): void {
    this.isReasoning = true;
    this.parts.addReasoning(text);
    this.recorder.write({ event: 'reasoning', data: this.reasoningData(text, 'running') });
  }

  private endReasoning(): void {
    if (!this.isReasoning) return;
    this.isReasoning = false;
    this.recorder.write({ event: 'reasoning', data: this.reasoningData('', 'done') });
  }

  private reasoningData(reasoning: string, state: 'running' | 'done') {
    const isComplete = state === 'done';
    return { ...this.ids, reasoning, isComplete, timestamp: now() };
  }

  private writeToolEnd({ call, event }: Extract<AgentPart, { type: 'tool-end' }>): void {
    this.parts.endCall(call);
    const { id, name, args, status, output } = call;
    const outcome = { status, output, ...(status === 'error' && { error: output }) };
    const data = { ...this.ids, toolName: name, args, ...outcome };
    this.recorder.write(
      event === 'action_call'
        ? { event, data: { ...data, toolCallId: id } }
        : { event: 'tool_call', data: { ...data, eventId: id } },
    );
  }

  private writeError({ message, kind, retryable, error }: TurnError): void {
    const data = {
      error: message,
      kind,
      code: error.code,
      retryable,
      ...this.ids,
      timestamp: now(),
    };
    this.recorder.write({ event: 'error', data });
  }
}

/** Why a turn has no complete answer, if no error says it. */
const reasons = {
  aborted: { code: 'turn_aborted', message: 'The turn was aborted.' },
  interrupted: { code: 'turn_interrupted', message: 'The turn was interrupted.' },
  failed: { code: 'internal_error', message: 'The turn failed.' },
} as const;

/** What later turns see of a call, unless its turn continues. */
const NOT_ANSWERED = JSON.stringify({
  error:
    'The call did not run: it needed an answer, and the user sent another message instead of answering.',
});

/** The call of the main agent that waits; a sub-agent waits within one. */
const toMainCall = ({ path, callId }: PendingInterrupt) => path.split('/')[0] || callId;

const now = () => new Date().toISOString();
