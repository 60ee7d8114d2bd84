import { randomUUID } from 'node:crypto';
import { canonicalJson, toApprovalId } from '@sibyl/protocol';
import type { NewInterrupt } from '../store/runs/pauses.js';
import type { Run } from '../store/runs/run.js';
import type { AgentCall, AgentRequest } from './agent.js';
import {
  buildCallPath,
  buildInterruptKey,
  type InterruptAnswer,
  type InterruptRequest,
  type PausedError,
  type PendingInterrupt,
  ToolInterrupt,
} from './steps.js';

/** Limits the questions of one call: one that changes whenever the tool runs would never be answered. */
const MAX_QUESTIONS = 20;

interface CallInterruptsDeps extends Pick<AgentRequest, 'journal'> {
  /** The agent that makes the call. */
  readonly path: string;
  readonly callId: string;
  /** What the call asked in earlier attempts, in order. */
  readonly asked: readonly InterruptRequest[];
}

/** An earlier question that this run of the call has not asked yet. */
interface EarlierQuestion {
  readonly key: string;
  readonly text: string;
}

/** The questions of one call. */
export class CallInterrupts {
  private readonly deps: CallInterruptsDeps;
  private readonly earlier: EarlierQuestion[];
  /** Not only thrown: a tool or a middleware may catch it. */
  private cause: ToolInterrupt | PausedError | undefined;
  private open: readonly PendingInterrupt[] = [];

  constructor(deps: CallInterruptsDeps) {
    const { path, callId, asked } = deps;
    this.deps = deps;
    this.earlier = asked.map((request, n) => ({
      key: buildInterruptKey(path, callId, n),
      text: identify(request),
    }));
  }

  /** What the call waits for. */
  get pending(): readonly PendingInterrupt[] {
    return this.open;
  }

  /** Creates what the tool receives. */
  createCall(id: string, signal: AbortSignal): AgentCall {
    const { journal, path } = this.deps;
    return {
      id,
      signal,
      nested: { journal, path: buildCallPath(path, id) },
      decision: this.findDecision(),
      interrupt: (request) => this.ask(request),
      pause: (paused) => this.stop(paused, paused.interrupts),
      throwIfPaused: () => this.throwIfPaused(),
    };
  }

  private findDecision(): AgentCall['decision'] {
    const { journal, path, callId, asked } = this.deps;
    const n = asked.findLastIndex(({ approval }) => approval !== undefined);
    const request = asked[n]?.approval;
    const answer = request && journal?.answers.get(buildInterruptKey(path, callId, n));
    return answer && { request, answer };
  }

  private ask(request: InterruptRequest): unknown {
    const { journal, path, callId, asked } = this.deps;
    this.throwIfPaused();
    if (!journal) throw new Error(CANNOT_ASK);
    const earlier = this.takeEarlier(request);
    const answer = earlier && journal.answers.get(earlier.key);
    if (answer) return readAnswer(answer);
    const key = earlier?.key ?? buildInterruptKey(path, callId, asked.length);
    if (!earlier && asked.length >= MAX_QUESTIONS) throw new Error(TOO_MANY);
    if (!earlier) journal.add({ type: 'interrupt', path, callId, request });
    return this.stop(new ToolInterrupt(request), [{ ...request, callId, path, key }]);
  }

  /** An answer counts only for exactly the question that was asked, and once. */
  private takeEarlier(request: InterruptRequest): EarlierQuestion | undefined {
    const text = identify(request);
    const found = this.earlier.findIndex((question) => question.text === text);
    return found < 0 ? undefined : this.earlier.splice(found, 1)[0];
  }

  private stop(cause: ToolInterrupt | PausedError, pending: readonly PendingInterrupt[]): never {
    this.cause = cause;
    this.open = pending;
    throw cause;
  }

  private throwIfPaused(): void {
    if (this.cause) throw this.cause;
  }
}

const TOO_MANY = `Not continued: this call has asked ${MAX_QUESTIONS} questions.`;
const CANNOT_ASK = 'This tool needs an answer from the user, but nothing can be asked here.';

function identify({ kind, schema, data, approval }: InterruptRequest): string {
  if (!approval) return canonicalJson({ kind, schema, data });
  const { tool, plugin, argsHash } = approval;
  return canonicalJson({ approval: { tool, plugin, argsHash } });
}

/** The answer to a question; throws an error for the model if there will be none. */
export function readAnswer(answer: InterruptAnswer): unknown {
  switch (answer.status) {
    case 'answered':
      return answer.value;
    case 'expired':
      throw new Error('The request expired without an answer.');
    case 'cancelled':
      throw new Error('The user sent another message instead of answering.');
    default:
      return answer satisfies never;
  }
}

/** How long an interrupt waits if its tool does not say. */
const DEFAULT_EXPIRY_SECONDS = 7 * 24 * 60 * 60;

export async function toInterrupt(interrupt: PendingInterrupt, run: Run): Promise<NewInterrupt> {
  const { kind, schema, callId, key, approval } = interrupt;
  const { expiresInSeconds = DEFAULT_EXPIRY_SECONDS } = interrupt;
  const question = { kind, schema, callId, path: key, expiresInMs: expiresInSeconds * 1000 };
  if (!approval) return { id: randomUUID(), ...question, data: interrupt.data };
  const { tool, plugin, argsHash, args, inputSchema, requiredBy, delegates } = approval;
  const place = { sessionId: run.sessionId, runId: run.runId, call: key };
  return {
    id: await toApprovalId({ ...place, tool, plugin, argsHash }),
    ...question,
    data: { tool, args },
    approval: {
      call: key,
      call_id: callId,
      tool,
      plugin,
      args_hash: argsHash,
      required_by: requiredBy,
      request: { args, inputSchema, delegates },
    },
  };
}
