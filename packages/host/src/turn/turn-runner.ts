import { OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { untilAborted } from '../agent/calls/until-aborted.js';
import { runAgent } from '../agent/run-agent.js';
import type { Metrics } from '../observe/metrics.js';
import type { RunStore } from '../store/runs/run-store.js';
import type { LiveRun } from './runs/live-run.js';
import type { RunOutcome } from './runs/run-outcome.js';
import type { Titles } from './titles.js';
import { type AnsweredFault, turnFaultOf, unexpectedFault } from './turn-fault.js';
import type { TurnJob } from './turn-job.js';
import type { TurnSetup } from './turn-setup.js';
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
