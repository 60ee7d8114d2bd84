import {
  type ErrorKind,
  type OracleError,
  type ReplyPart,
  type ReplyWarning,
} from '@sibyl/protocol';
import type { AgentPart } from '../agent/agent.js';
import { toInterrupt } from '../agent/call-interrupts.js';
import type { ApprovalRequest, PendingInterrupt } from '../agent/steps.js';
import type { ServerEvent } from '../bus/event-bus.js';
import type { UnsealedInterrupt } from '../store/runs/interrupts.js';
import type { EndedTrace, Ending, Run, RunEnding } from '../store/runs/run.js';
import type { TokenUsage } from '../store/schema/runs.js';
import { MessageParts } from './message-parts.js';
import { createReport, MAX_WARNINGS, type RunOutcome, readError } from './run-log.js';
import { buildDoneFrame, type RunRecorder } from './run-recorder.js';

/** Why a turn failed: the fields of its `error` frame, and the error for a caller that receives no text. */
export interface TurnError {
  readonly message: string;
  readonly kind: ErrorKind;
  readonly retryable: boolean;
  readonly error: OracleError;
  /** A code for operators. */
  readonly cause: string;
}

/** How a turn ended. */
interface TurnEnding {
  readonly status: Ending;
  readonly usage: TokenUsage;
  readonly failure: TurnError | undefined;
  /** Why the answer is missing or incomplete. */
  readonly error: OracleError | undefined;
  readonly trace: EndedTrace;
}

/** Converts the agent's parts to frames of the run and collects the message to store. */
export class TurnWriter {
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
  async end({ status, usage, failure, error, trace }: TurnEnding): Promise<RunOutcome> {
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
  }: TurnPause): Promise<RunOutcome | undefined> {
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
        data: new Map(questions.map(({ id }, i) => [id, toQuestionData(interrupts[i])])),
        request,
        limit,
        ending: { usage, report, message },
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
    { id: approvalId, callId: toolCallId, expiresInMs }: UnsealedInterrupt,
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
    status: Ending,
    { error, kind }: { error: OracleError | undefined; kind: ErrorKind | undefined },
  ): RunEnding['message'] {
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

/** How a turn pauses. */
interface TurnPause {
  readonly interrupts: readonly PendingInterrupt[];
  /** For the next attempt. */
  readonly request: unknown;
  /** Paused runs of one user. */
  readonly limit: number;
  readonly usage: TokenUsage;
  /** By the clock of the database, with which answers expire. */
  readonly now: number;
}

/** What later turns see of a call, unless its turn continues. */
const NOT_ANSWERED = JSON.stringify({
  error:
    'The call did not run: it needed an answer, and the user sent another message instead of answering.',
});

/** The call of the main agent that waits; a sub-agent waits within one. */
const toMainCall = ({ path, callId }: PendingInterrupt) => path.split('/')[0] || callId;

/** What plugins see of a question. */
function toQuestionData(interrupt: PendingInterrupt | undefined): unknown {
  const { approval, data } = interrupt ?? {};
  return approval ? { tool: approval.tool, args: approval.args } : data;
}

const now = () => new Date().toISOString();
