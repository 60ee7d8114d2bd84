import { type FaultKind, OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import type { TurnFault } from '../agent/agent.js';
import { runAgent } from '../agent/run-agent.js';
import { untilAborted } from '../agent/timeouts.js';
import { ModelFault } from '../models/model.js';
import type { Metrics } from '../observability/metrics.js';
import type { RunStore } from '../store/runs/run-store.js';
import { isStoreError } from '../store/store-errors.js';
import type { LiveRun, RunOutcome } from './run-log.js';
import type { Titles } from './titles.js';
import type { TurnJob, TurnSetup } from './turn-setup.js';
import { TurnWriter } from './turn-writer.js';

interface TurnRunnerParts {
  readonly runs: RunStore;
  readonly setup: TurnSetup;
  readonly titles: Titles;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** How long a turn may run. */
  readonly maxMs: number;
}

/** Carries out turns: lets the agent work, stores how it ended, and settles what it cost. */
export class TurnRunner {
  constructor(private readonly parts: TurnRunnerParts) {}

  async run(job: TurnJob): Promise<RunOutcome> {
    let naming: Promise<void> | undefined;
    try {
      const outcome = await this.carryOut(job);
      naming = this.nameAfter(job, outcome);
      return outcome;
    } finally {
      // The title is part of what the turn costs; nobody waits for it, or for the settling.
      void Promise.resolve(naming).then(() => job.account.settle());
    }
  }

  private async carryOut(job: TurnJob): Promise<RunOutcome> {
    const { live, recorder, account } = job;
    const writer = new TurnWriter(live.run, recorder);
    const fault = await this.answer(job, writer);
    const status = !fault ? 'finished' : (live.cutReason ?? 'failed');
    this.parts.metrics.count('sibyl_turns_total', { status, kind: fault?.kind ?? '' });
    const shown = status === 'failed' ? fault : undefined;
    const error = status === 'finished' ? undefined : (shown?.refusal ?? live.error);
    return writer.end({ status, usage: account.total, fault: shown, error });
  }

  private nameAfter({ request, session, account }: TurnJob, { status, text }: RunOutcome) {
    if (status !== 'finished') return undefined;
    const exchange = { question: request.message.message, answer: text };
    return this.parts.titles.nameAfter(session, exchange, account);
  }

  /** Lets the agent work to its end; what kept it from getting there is returned. */
  private async answer(job: TurnJob, writer: TurnWriter): Promise<AnsweredFault | undefined> {
    const { live } = job;
    const timer = setTimeout(() => live.fail(this.tookTooLong()), this.parts.maxMs);
    try {
      const warn = (code: string, message: string) => writer.warn(code, message);
      for (const { code, message } of job.request.warnings ?? []) warn(code, message);
      const request = await untilAborted(async () => {
        await this.begin(live);
        return this.parts.setup.prepare(job, warn);
      }, live.signal);
      for await (const part of runAgent(request)) writer.write(part);
      return undefined;
    } catch (error) {
      return this.faultOf(live.error ?? error, live);
    } finally {
      clearTimeout(timer);
    }
  }

  private tookTooLong(): OracleError {
    const message = `The turn was stopped after ${this.parts.maxMs / 1000} seconds, the longest that one turn may take on this host.`;
    return new OracleError('turn_too_long', { message });
  }

  private async begin({ run: { status, owner, id: runId } }: LiveRun): Promise<void> {
    if (status === 'queued') await this.parts.runs.markRunning({ owner, runId });
  }

  /** Told to the operator too: to a client that streams, the answer was a 200. */
  private faultOf(error: unknown, { run, cutReason }: LiveRun): AnsweredFault {
    const { logger } = this.parts;
    const about = { runId: run.id, requestId: run.requestId, did: run.owner };
    const fault = turnFaultOf(error);
    if (!cutReason && fault) logger.warn({ ...about, kind: fault.kind }, fault.message);
    if (!cutReason && !fault) logger.error({ ...about, err: error }, 'turn failed');
    return fault ?? unexpectedFault();
  }
}

/** A fault of a turn, with the error that answers a caller who gets no text. */
export type AnsweredFault = TurnFault & { readonly refusal: OracleError };

const RETRY_SECONDS = 5;

/** What ended a turn, as its user is told; undefined for what is a bug. */
function turnFaultOf(error: unknown): AnsweredFault | undefined {
  if (error instanceof ModelFault) return modelFault(error);
  if (error instanceof OracleError) return refused(error);
  if (!isStoreError(error)) return undefined;
  return refused(
    new OracleError('store_unavailable', { retryAfterSeconds: RETRY_SECONDS, cause: error }),
  );
}

/** A fault that says nothing of itself to the user. */
function unexpectedFault(): AnsweredFault {
  const refusal = new OracleError('internal_error', { message: 'The turn failed within the host' });
  return { message: refusal.message, kind: 'unknown', retryable: true, refusal };
}

function modelFault(fault: ModelFault): AnsweredFault {
  const { message, kind, retryable, retryAfterSeconds = RETRY_SECONDS } = fault;
  const refusal = new OracleError('model_unavailable', {
    message,
    // A call that fails again however long one waits is not worth waiting for.
    ...(retryable && { retryAfterSeconds }),
  });
  return { message, kind, retryable, refusal };
}

const kinds: Readonly<Record<number, FaultKind>> = {
  401: 'auth',
  402: 'billing',
  403: 'auth',
  422: 'server',
  429: 'rate_limit',
  503: 'server',
};

/** By a gate, a middleware or a limit, or by the store. */
function refused(refusal: OracleError): AnsweredFault {
  const { status, message } = refusal;
  const retryable = status === 429 || status === 503;
  return { message, kind: kinds[status] ?? 'unknown', retryable, refusal };
}
