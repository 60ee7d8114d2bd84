import type { ToolChoice } from '@sibyl/plugin-kit/surface';
import {
  type Approval,
  canonicalJson,
  type JsonObject,
  OracleError,
  type PendingAnswer,
} from '@sibyl/protocol';
import { checkAnswer } from '../../agent/json-schema.js';
import type { SessionKey } from '../../bus/event-bus.js';
import type { Interrupt } from '../../store/runs/pauses.js';
import type { Run } from '../../store/runs/run.js';
import type { RunStore } from '../../store/runs/run-store.js';
import type { RunKey } from '../../store/schema/runs.js';
import type { Store } from '../../store/store.js';
import { fromStoredRequest, toStoredRequest, withToolChoice } from '../turn-request.js';
import type { Turns } from '../turns.js';

/** An answer to an interrupt. */
interface InterruptReply {
  readonly owner: string;
  readonly interruptId: string;
  readonly value: unknown;
  /** For what follows the answer. */
  readonly toolChoice?: ToolChoice | undefined;
}

/** A question of a turn; one for an approval is answered by a decision only. */
interface TurnInterrupt extends Interrupt {
  readonly isApproval: boolean;
}

/** A question that a run has asked. */
interface AskedInterrupt extends TurnInterrupt {
  readonly approval: Approval | undefined;
}

/** What became of a run that paused. */
interface Continuation {
  /** The next attempt of the turn. */
  readonly runId: string | undefined;
  readonly isStopped: boolean;
  readonly interrupts: readonly (TurnInterrupt & { readonly outcome: Outcome })[];
}

type Outcome = 'answered' | Exclude<Approval['status'], 'pending'>;

/** The run to join after an answer, and what its turn still waits for. */
interface AnsweredTurn {
  readonly runId: string;
  readonly pending?: readonly PendingAnswer[];
}

/** Turns that wait for answers of their users; any host can continue them. */
export class PausedTurns {
  private readonly runs: RunStore;

  constructor(
    private readonly store: Pick<Store, 'runs' | 'approvals' | 'messages'>,
    private readonly turns: Turns,
  ) {
    this.runs = store.runs;
  }

  /** The questions that the paused turn of a session asks. */
  async pending({ owner, sessionId }: SessionKey): Promise<readonly TurnInterrupt[]> {
    const run = await this.runs.current({ owner, sessionId });
    if (run?.status !== 'paused') return [];
    const interrupts = await this.runs.interrupts({ owner, sessionId, turn: run.turn });
    const approvals = await this.store.approvals.pending(owner, sessionId);
    const ids = new Set(approvals.map(({ id }) => id));
    return interrupts
      .filter(({ status }) => status === 'open')
      .map((interrupt) => ({ ...interrupt, isApproval: ids.has(interrupt.id) }));
  }

  /** The questions that a run paused with, also those that have been answered since. */
  async asked({ owner, sessionId, turn, runId }: Run): Promise<readonly AskedInterrupt[]> {
    const interrupts = await this.runs.interrupts({ owner, sessionId, turn });
    const questions: AskedInterrupt[] = [];
    for (const interrupt of interrupts.filter((each) => each.runId === runId)) {
      const approval = await this.store.approvals.find({ owner, id: interrupt.id });
      questions.push({ ...interrupt, approval, isApproval: approval !== undefined });
    }
    return questions;
  }

  /** Those of the runs that are paused. */
  findPaused(keys: readonly RunKey[]): Promise<readonly RunKey[]> {
    return this.runs.findPaused(keys);
  }

  /** What became of a run that paused; undefined while it waits. */
  async continuation(key: RunKey): Promise<Continuation | undefined> {
    const run = await this.runs.find(key);
    if (run?.status === 'paused') return undefined;
    const asked = run ? await this.asked(run) : [];
    return {
      runId: asked.find(({ nextRunId }) => nextRunId !== undefined)?.nextRunId,
      isStopped: run?.status === 'aborted',
      interrupts: asked.map((question) => ({ ...question, outcome: toOutcome(question) })),
    };
  }

  /** Continues a paused turn with an answer; the same answer again returns the same run. */
  async answer(reply: InterruptReply): Promise<AnsweredTurn> {
    this.turns.assertOpen();
    const { owner, interruptId } = reply;
    const interrupt = await this.runs.findInterrupt({ owner, interruptId });
    if (!interrupt) throw new OracleError('interrupt_not_found');
    if (await this.store.approvals.find({ owner, id: interruptId }))
      throw new OracleError('decision_unsigned');
    const value = readAnswer(reply.value, interrupt.schema);
    const request = reply.toolChoice && (await this.changeRequest(interrupt, reply.toolChoice));
    const end = { owner, interruptId, status: 'answered', value, request } as const;
    const result = await this.runs.endInterrupt(end);
    switch (result.state) {
      case 'continued':
        void this.turns.adopt(result.run);
        return { runId: result.run.runId };
      case 'waiting':
        return { runId: interrupt.runId, pending: result.pending };
      default:
        return this.repeat({ owner, interruptId, value });
    }
  }

  /** The request of the paused run with another choice; undefined if it is not stored any more. */
  private async changeRequest({ owner, runId }: Interrupt, choice: ToolChoice): Promise<unknown> {
    const request = fromStoredRequest(await this.runs.request({ owner, runId }));
    return request && toStoredRequest(withToolChoice(request, choice));
  }

  /** Adds the result of a client tool to an answer that will not continue, because another message follows. */
  async keepResult({ owner, interruptId, value }: InterruptReply): Promise<void> {
    const interrupt = await this.runs.findInterrupt({ owner, interruptId });
    if (interrupt?.status !== 'open' || interrupt.kind !== 'tool_call') return;
    const { callId, runId, path } = interrupt;
    // A call of a sub-agent is not part of the answer. A call that was approved has asked before.
    if (path !== callId && !path.startsWith(`${callId}#`)) return;
    const { messageId } = (await this.runs.find({ owner, runId })) ?? {};
    const outputs = new Map([[callId, JSON.stringify(value ?? null)]]);
    if (messageId) await this.store.messages.setOutputs({ owner, messageId, outputs });
  }

  /** Continues turns whose questions have expired. */
  async expire(): Promise<void> {
    for (const key of await this.runs.expiredInterrupts()) {
      const result = await this.runs.endInterrupt({ ...key, status: 'expired' });
      if (result.state === 'continued') void this.turns.adopt(result.run);
    }
  }

  private async repeat({ owner, interruptId, value }: InterruptReply): Promise<AnsweredTurn> {
    const closed = await this.runs.findInterrupt({ owner, interruptId });
    if (closed?.status !== 'answered' || canonicalJson(closed.value) !== canonicalJson(value))
      throw new OracleError('interrupt_closed');
    return { runId: closed.nextRunId ?? closed.runId };
  }
}

function toOutcome({ status, approval }: AskedInterrupt): Outcome {
  if (approval && approval.status !== 'pending') return approval.status;
  return status === 'open' ? 'cancelled' : status;
}

/** Returns the answer with the defaults of its schema. */
function readAnswer(value: unknown, schema: JsonObject): unknown {
  const { ok, error } = checkAnswer(schema, value);
  if (error) throw new OracleError('validation_failed', { message: [...error] });
  return ok;
}
