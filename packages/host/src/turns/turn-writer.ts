import { randomUUID } from 'node:crypto';
import type { Message as MessageView, OracleError, ReplyWarning, ToolCall } from '@sibyl/protocol';
import type { AgentPart, TurnFault } from '../agent/agent.js';
import type { Message } from '../store/message.js';
import type { Run, TokenUsage } from '../store/runs/run.js';
import { createReport, MAX_WARNINGS, type RunOutcome, readError } from './run-log.js';
import { doneOf, type RunRecorder } from './run-recorder.js';

/** How a turn ended, beyond what was said in it. */
interface TurnEnding {
  readonly status: RunOutcome['status'];
  readonly usage: TokenUsage;
  readonly fault: TurnFault | undefined;
  /** Why the turn has no answer, or only a part of one. */
  readonly error: OracleError | undefined;
}

/** Turns what the agent does into the frames of its run, and keeps what becomes the message. */
export class TurnWriter {
  private readonly run: Run;
  private readonly recorder: RunRecorder;
  private readonly place: { readonly sessionId: string; readonly requestId: string };
  private readonly toolCalls: ToolCall[] = [];
  private readonly warnings: ReplyWarning[] = [];
  private text = '';
  private reasoning = '';
  private isReasoning = false;

  constructor(run: Run, recorder: RunRecorder) {
    this.run = run;
    this.recorder = recorder;
    this.place = { sessionId: run.sessionId, requestId: run.requestId };
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

  /** Tells that something was left out while the turn goes on. */
  warn(code: string, message: string): void {
    const data = { code, message, ...this.place, timestamp: now() };
    if (this.warnings.length < MAX_WARNINGS) this.warnings.push({ code, message });
    this.recorder.write({ event: 'warning', data });
  }

  /** Ends the run: its message and its last frames are stored together. */
  async end({ status, usage, fault, error }: TurnEnding): Promise<RunOutcome> {
    this.endReasoning();
    if (fault) this.writeFault(fault);
    const messageId = this.hasAnswer(status) ? randomUUID() : undefined;
    const text = this.text;
    const report = createReport(this.warnings, error);
    const run = await this.recorder.end(
      {
        status,
        usage,
        report,
        ...(messageId && { message: { id: messageId, ...this.message(status) } }),
        ...(fault && { fault: { kind: fault.kind, message: fault.message } }),
      },
      doneOf({ runId: this.run.id, messageId, status, text }),
    );
    // An end that could not be stored in time is stored as a failure.
    const stored = run.status === 'failed' ? 'failed' : status;
    const { warnings = [] } = report;
    const why = error ?? readError(run);
    return { status: stored, messageId: run.messageId, text, warnings, error: why };
  }

  /** A turn that failed before it said anything leaves no message; one cut short leaves a mark. */
  private hasAnswer(status: RunOutcome['status']): boolean {
    return status !== 'failed' || Boolean(this.text || this.reasoning || this.toolCalls.length);
  }

  private message(status: RunOutcome['status']) {
    return {
      content: this.text,
      isComplete: status === 'finished',
      ...(this.reasoning && { reasoning: this.reasoning }),
      ...(this.toolCalls.length > 0 && { toolCalls: this.toolCalls }),
    };
  }

  private writeText(content: string): void {
    this.text += content;
    this.recorder.write({ event: 'message', data: { content, timestamp: now() } });
  }

  /** The start of an action is told by whoever calls the page: not before its input is known to fit. */
  private writeToolStart({
    id,
    name,
    args,
    event,
  }: Extract<AgentPart, { type: 'tool-start' }>): void {
    if (event === 'action_call') return;
    this.recorder.write({
      event: 'tool_call',
      data: { ...this.place, eventId: id, toolName: name, args, status: 'isRunning' },
    });
  }

  private writeReasoning(text: string): void {
    this.isReasoning = true;
    this.reasoning += text;
    this.recorder.write({ event: 'reasoning', data: this.reasoningData(text, 'goes on') });
  }

  private endReasoning(): void {
    if (!this.isReasoning) return;
    this.isReasoning = false;
    this.recorder.write({ event: 'reasoning', data: this.reasoningData('', 'is over') });
  }

  private reasoningData(reasoning: string, state: 'goes on' | 'is over') {
    const isComplete = state === 'is over';
    return { ...this.place, reasoning, isComplete, timestamp: now() };
  }

  private writeToolEnd({ call, event }: Extract<AgentPart, { type: 'tool-end' }>): void {
    this.toolCalls.push(call);
    const { id, name, args, status, output } = call;
    const outcome = { status, output, ...(status === 'error' && { error: output }) };
    const data = { ...this.place, toolName: name, args, ...outcome };
    this.recorder.write(
      event === 'action_call'
        ? { event, data: { ...data, toolCallId: id } }
        : { event: 'tool_call', data: { ...data, eventId: id } },
    );
  }

  private writeFault({ message, kind, retryable, refusal }: TurnFault): void {
    const code = refusal && { code: refusal.code };
    const data = { error: message, kind, ...code, retryable, ...this.place, timestamp: now() };
    this.recorder.write({ event: 'error', data });
  }
}

const now = () => new Date().toISOString();

/** A stored message as the contract shows it (B3). */
export function messageView(message: Message): MessageView {
  const { toolCalls, reasoning, attachments } = message;
  return {
    id: message.id,
    type: message.type,
    content: message.content,
    createdAt: new Date(message.createdAt).toISOString(),
    ...(toolCalls && { toolCalls: [...toolCalls] }),
    ...(reasoning && { reasoning }),
    ...(attachments && { attachments: [...attachments] }),
    requestId: message.requestId,
    isComplete: message.isComplete,
  };
}
