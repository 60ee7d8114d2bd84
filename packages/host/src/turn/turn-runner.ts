import type { Tool, TurnContext } from '@sibyl/plugin-kit';
import type { Logger } from 'pino';
import type { AgentRequest, AgentTool, TurnFault } from '../agent/agent.js';
import { SummaryCache } from '../agent/budget/summary-cache.js';
import { toModelMessages } from '../agent/conversation/history.js';
import { ModelFault } from '../agent/model/model-fault.js';
import type { Models } from '../agent/model/models.js';
import { composePrompt } from '../agent/prompt/compose-prompt.js';
import { runAgent } from '../agent/run-agent.js';
import { toAgentTool } from '../agent/tools/to-agent-tool.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Config } from '../config/config.js';
import type { Metrics } from '../observe/metrics.js';
import type { Session } from '../store/sessions/session.js';
import type { Store } from '../store/store.js';
import type { LiveRun } from './live-run.js';
import type { RunOutcome } from './run-outcome.js';
import type { RunRecorder } from './run-recorder.js';
import type { Titles } from './titles.js';
import { createTurnContext } from './turn-context.js';
import type { TurnRequest } from './turn-request.js';
import { TurnWriter } from './turn-writer.js';

interface TurnRunnerParts {
  readonly store: Store;
  readonly models: Models;
  readonly oracle: OracleIdentity;
  readonly authority: DelegatedAuthority;
  readonly tools: readonly Tool[];
  readonly titles: Titles;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly settings: Config['turns'];
}

/** One turn and everything it works with. */
export interface TurnJob {
  readonly live: LiveRun;
  readonly recorder: RunRecorder;
  readonly request: TurnRequest;
  readonly session: Session;
}

/** Carries out turns: gathers what the agent needs, lets it work, and stores how it ended. */
export class TurnRunner {
  /** Of older turns, so that a long session pays for each once. */
  private readonly summaries = new SummaryCache();

  constructor(private readonly parts: TurnRunnerParts) {}

  async run(job: TurnJob): Promise<RunOutcome> {
    const { live, recorder, request, session } = job;
    const writer = new TurnWriter(live.run, recorder);
    const fault = await this.answer(job, writer);
    const status = !fault ? 'finished' : (live.cutReason ?? 'failed');
    this.parts.metrics.count('sibyl_turns_total', { status, kind: fault?.kind ?? '' });
    const outcome = await writer.end(status, status === 'failed' ? fault : undefined);
    if (status === 'finished') {
      const exchange = { question: request.message.message, answer: outcome.text };
      this.parts.titles.nameAfter(session, exchange);
    }
    return outcome;
  }

  /** Lets the agent work to its end; what kept it from getting there is returned. */
  private async answer(job: TurnJob, writer: TurnWriter): Promise<TurnFault | undefined> {
    try {
      job.live.signal.throwIfAborted();
      await this.begin(job.live);
      const request = await this.prepare(job, writer);
      for await (const part of runAgent(request)) writer.write(part);
      return undefined;
    } catch (error) {
      return this.faultOf(error, job.live);
    }
  }

  private async begin({ run: { status, owner, id: runId } }: LiveRun): Promise<void> {
    if (status === 'queued') await this.parts.store.runs.markRunning({ owner, runId });
  }

  private async prepare(job: TurnJob, writer: TurnWriter): Promise<AgentRequest> {
    const { live, request, session } = job;
    const { store, models, authority, logger, settings } = this.parts;
    const { owner, id: sessionId, roomId } = session;
    const [messages, preferences] = await Promise.all([
      store.messages.list({ owner, sessionId, throughTurn: live.run.turn }),
      store.preferences.get({ owner, roomId }),
    ]);
    const { signal } = live;
    const context = createTurnContext({
      request,
      session,
      messages,
      preferences,
      authority,
      logger,
      signal,
    });
    const chosen = request.message.model && models.find(request.message.model);
    return {
      model: chosen || models.get('main'),
      smallModel: models.get('utility'),
      system: this.prompt(context),
      messages: toModelMessages(messages),
      tools: this.toolsOf(context, writer),
      limits: { steps: settings.maxSteps, contextTokens: settings.contextTokens },
      summaries: this.summaries,
      signal,
    };
  }

  private prompt({ user, state }: TurnContext): string {
    return composePrompt({
      oracleName: this.parts.oracle.name,
      instructions: this.parts.settings.instructions,
      preferences: state.userPreferences,
      currentTime: user.currentTime,
      timezone: user.timezone,
      entity: state,
    });
  }

  /** A tool whose schema cannot be used is left out of this turn, and the user is told. */
  private toolsOf(context: TurnContext, writer: TurnWriter): AgentTool[] {
    return this.parts.tools.flatMap((tool) => {
      const bound = toAgentTool({
        ...tool,
        run: async (input, { id, signal }) =>
          tool.run(input, { ...context, toolCallId: id, signal }),
      });
      if ('ok' in bound) return [bound.ok];
      writer.warn('tool_left_out', `The tool ${tool.name} cannot be used: ${bound.fault}`);
      return [];
    });
  }

  /** Told to the operator too: to a client that streams, the answer was a 200. */
  private faultOf(error: unknown, { run, cutReason }: LiveRun): TurnFault {
    const about = { runId: run.id, requestId: run.requestId, did: run.owner };
    if (error instanceof ModelFault) {
      if (!cutReason) this.parts.logger.warn({ ...about, kind: error.kind }, error.message);
      return error;
    }
    if (!cutReason) this.parts.logger.error({ ...about, err: error }, 'turn failed');
    return { message: 'The turn failed within the host', kind: 'unknown', retryable: true };
  }
}
