import type { TurnContext, TurnUser } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import type { ToolCall } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { type AgentRequest, StepBudget, SummaryCache } from '../agent/agent.js';
import { createLlms } from '../agent/ask-model.js';
import { toModelMessages } from '../agent/conversation.js';
import { composePrompt } from '../agent/prompt.js';
import type { AgentStep, InterruptAnswer } from '../agent/steps.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { LiveRules, UserRules } from '../auth/user-rules.js';
import type { PendingClientCalls } from '../bus/pending-client-calls.js';
import type { Config } from '../config/config.js';
import type { ModelRole } from '../models/model.js';
import type { Models } from '../models/models.js';
import type { Metrics } from '../observability/metrics.js';
import { type Message, toQuestionParts } from '../store/message-store.js';
import type { Run } from '../store/runs/run.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import { repeatRead } from '../store/store-errors.js';
import { Capabilities, type TurnTool } from './capabilities.js';
import type { TurnAccount } from './gates.js';
import type { Hooks } from './hooks.js';
import { MiddlewareChain } from './middlewares.js';
import type { LiveRun } from './run-log.js';
import type { RunRecorder } from './run-recorder.js';
import { type RanCall, ToolPolicy } from './tool-policy.js';
import { TurnReach } from './tool-reach.js';
import { applyToolChoice, gatherTools } from './tools.js';
import type { TurnAccess } from './turn-access.js';
import {
  buildTurnFacts,
  createClientCalls,
  createTurnEmit,
  TurnContexts,
  type TurnFacts,
} from './turn-context.js';
import { OutputLimit } from './turn-limits.js';
import type { TurnRequest } from './turn-request.js';

/** Key of the host's own session state; not a valid plugin name. */
const HOST = '(host)';
const WARNING_LIMIT = 1000;
/**
 * Bytes of history to read per token of context. A token is about four bytes; the margin covers older tool results,
 * which are shortened later.
 */
const HISTORY_BYTES_PER_TOKEN = 16;

const TOO_OLD =
  'The conversation is very long: its oldest messages are stored, but no longer part of what the model sees.';

interface TurnSetupDeps {
  readonly store: Store;
  readonly models: Models;
  readonly oracle: OracleIdentity;
  readonly authority: DelegatedAuthority;
  readonly access: TurnAccess;
  readonly rules: UserRules;
  /** In dependency order. */
  readonly plugins: readonly LoadedPlugin[];
  readonly hooks: Hooks;
  readonly pendingCalls: PendingClientCalls;
  /** Whether events of plugins are validated. */
  readonly checksEvents: boolean;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly settings: Config['turns'];
}

/** A job whose plugins may emit events. */
interface EmittingJob extends TurnJob {
  readonly events: Pick<RunRecorder, 'write'>;
}

/** A job with what was loaded for it. */
interface Preparation extends EmittingJob {
  readonly warn: TurnContext['warn'];
  readonly messages: readonly Message[];
  readonly facts: TurnFacts;
  /** `main` is the model of this turn. */
  readonly models: Pick<Models, 'get'>;
  readonly policy: ToolPolicy;
  readonly reach: TurnReach;
}

/** Builds the agent's request from the store and the plugins. */
export class TurnSetup {
  /** Summaries of older turns, so that a long session pays for each only once. */
  private readonly summaries = new SummaryCache();
  /** By plugin. */
  private readonly loggers: ReadonlyMap<string, Logger>;

  constructor(private readonly deps: TurnSetupDeps) {
    const { plugins, logger } = deps;
    this.loggers = new Map(plugins.map(({ name }) => [name, logger.child({ plugin: name })]));
  }

  async prepare(job: EmittingJob, warn: TurnContext['warn']): Promise<AgentRequest> {
    const { live, request, session } = job;
    const bytes = this.deps.settings.contextTokens * HISTORY_BYTES_PER_TOKEN;
    const [recent, delegation, rules] = await Promise.all([
      this.read(live, () =>
        this.deps.store.messages.recent({
          owner: session.owner,
          sessionId: session.sessionId,
          branch: live.run.branch,
          throughTurn: live.run.turn,
          bytes,
        }),
      ),
      this.findDelegation(request),
      this.read(live, () => this.openRules(live)),
    ]);
    // Only the first message of a session has no parent.
    if (recent[0]?.parent !== undefined) warn('history_shortened', TOO_OLD);
    const stored = recent.filter((message) => isPrompted(message, live.run));
    const messages = [...toEarlierMessages(request, live.run), ...stored];
    const facts = buildTurnFacts({ request, session, messages, delegation });
    const models = this.selectModels(job);
    const policy = this.createPolicy(job, rules);
    const { caveats } = request.caller.accessKey ?? {};
    const reach = new TurnReach({ caveats, subUser: facts.user.subUser });
    return this.buildRequest({ ...job, warn, messages, facts, models, policy, reach });
  }

  private read<T>({ signal }: LiveRun, read: () => Promise<T>): Promise<T> {
    return repeatRead(read, { waitMs: this.deps.settings.storeWaitMs, signal });
  }

  /** Until the turn ends. */
  private async openRules(live: LiveRun): Promise<LiveRules> {
    const rules = await this.deps.rules.open(live.run.owner);
    void live.outcome.then(() => rules.close());
    return rules;
  }

  private createPolicy({ live, recorder, request }: TurnJob, rules: LiveRules): ToolPolicy {
    const { hooks, authority, access, settings } = this.deps;
    const { caller } = request;
    const onUse = access.watchUses(live);
    const createUcan = (plugin: string) => authority.turnUcan({ caller, plugin, onUse });
    const onRan = (call: RanCall) => recorder.recordCall(call);
    return new ToolPolicy({ operator: settings.approvals, rules, hooks, createUcan, onRan });
  }

  private async buildRequest(turn: Preparation): Promise<AgentRequest> {
    const { live, account, messages, models, policy, reach, warn } = turn;
    const { plugins, hooks, settings } = this.deps;
    const { signal } = live;
    const { steps = [], answers = new Map() } = turn.progress ?? {};
    const journal = turn.recorder.openJournal(steps, answers);
    const { owner, sessionId } = live.run;
    const sessionState = this.deps.store.sessionState.ofTurn({ owner, sessionId });
    const contexts = await TurnContexts.open({ ...this.contextDeps(turn), sessionState }, plugins);
    const chain = new MiddlewareChain({ plugins, contexts, hooks, reach, signal });
    const shared = {
      smallModel: models.get('utility'),
      limits: { steps: new StepBudget(settings.maxSteps), contextTokens: settings.contextTokens },
      summaries: this.summaries,
      meter: account,
      onToolEnd: ({ name, status }: ToolCall, seconds: number) =>
        this.deps.metrics.observeTool(name, status, seconds),
    };
    const tools = await gatherTools({
      ...shared,
      models,
      plugins,
      contexts,
      policy,
      reach,
      chain,
      hooks,
      warn,
      surface: turn.request.surface,
      signal,
    });
    const state = sessionState.of(HOST);
    const capabilities = await this.read(live, () =>
      Capabilities.open({ plugins: listDescribed(plugins, tools, reach), tools, state, chain }),
    );
    const model = models.get('main');
    const { degraded } = contexts;
    const { timezone } = turn.facts.user;
    const { reasoningEffort: reasoning, responseSchema } = turn.request.message;
    return {
      ...shared,
      model,
      system: this.buildPrompt(contexts, capabilities, turn.request),
      messages: toModelMessages(messages, { timezone, now: Date.now(), degraded }),
      tools: () => capabilities.tools,
      ...applyToolChoice(tools, turn.request.surface),
      reasoning,
      responseSchema,
      hooks: chain.aroundModel({ agent: 'main', model }),
      journal,
      signal,
    };
  }

  private contextDeps(turn: Preparation) {
    const { live, recorder, events, request, account, facts, models, policy, reach, warn } = turn;
    const { store, hooks, pendingCalls, checksEvents, logger } = this.deps;
    const { run, signal } = live;
    return {
      request,
      facts,
      store,
      createUcan: (plugin: string) => policy.restrictUcan(plugin),
      llm: createLlms({ modelFor: models.get, meter: account, signal }),
      emit: createTurnEmit({ run, recorder: events, logger, checksEvents }),
      client: createClientCalls({ run, recorder, pendingCalls }),
      warn: (code: string, message: string) =>
        warn(`${code}`.slice(0, WARNING_LIMIT), `${message}`.slice(0, WARNING_LIMIT)),
      hooks,
      reach,
      loggerFor: (plugin: string) => this.loggers.get(plugin) ?? logger,
      signal,
    };
  }

  private buildPrompt(
    { state }: TurnContexts,
    { described }: Capabilities,
    { surface }: TurnRequest,
  ): string {
    const { oracle, settings } = this.deps;
    return composePrompt({
      oracleName: oracle.name,
      capabilities: described,
      instructions: settings.instructions,
      clientInstructions: surface?.instructions,
      preferences: state.userPreferences,
    });
  }

  private selectModels({ live, request: { message } }: TurnJob): Pick<Models, 'get'> {
    const { models, settings } = this.deps;
    const output = new OutputLimit({
      maxCharacters: settings.maxCharacters,
      onReached: (error) => live.fail(error),
    });
    const main = (message.model && models.find(message.model)) || models.get('main');
    return { get: (role: ModelRole) => output.wrap(role === 'main' ? main : models.get(role)) };
  }

  /** Only plugins use it; a turn works without it. */
  private async findDelegation({ caller }: TurnRequest): Promise<TurnUser['delegation']> {
    if (this.deps.plugins.length === 0) return undefined;
    try {
      const found = await this.deps.authority.findDelegation(caller);
      if (!found) return undefined;
      const { cid, expiration } = found;
      return { cid, ...(Number.isFinite(expiration) && { expiration }) };
    } catch (err) {
      this.deps.logger.warn({ err, did: caller.did }, 'delegation not read');
      return undefined;
    }
  }
}

/** The plugins that the prompt may describe: in a turn with limited tools, those that have any. */
function listDescribed(
  plugins: readonly LoadedPlugin[],
  tools: readonly TurnTool[],
  { isLimited }: TurnReach,
): readonly LoadedPlugin[] {
  if (!isLimited) return plugins;
  return plugins.filter(({ name }) => tools.some(({ plugin }) => plugin.name === name));
}

/** Omits the partial answer of failed turns, and of earlier attempts of this turn, which its steps contain. */
function isPrompted({ type, error, id }: Message, run: Run): boolean {
  return type === 'human' || (error?.status !== 'failed' && id !== run.messageId);
}

/** The conversation before the message, if the client keeps it itself. */
function toEarlierMessages({ surface }: TurnRequest, run: Run): Message[] {
  const { owner, sessionId, requestId, branch, createdAt } = run;
  return (surface?.history ?? []).map(({ role, text, toolCalls = [], attachments }, i): Message => {
    const calls = toolCalls.map((call) => ({ type: 'tool-call', call }) as const);
    const parts =
      calls.length > 0
        ? [{ type: 'text', text } as const, ...calls]
        : toQuestionParts(text, attachments);
    const type = role === 'user' ? 'human' : 'ai';
    const place = { id: `earlier-${i}`, owner, sessionId, requestId, branch, turn: 0, seq: 0 };
    return {
      ...place,
      type,
      content: text,
      ...(parts && { parts }),
      isComplete: true,
      createdAt,
    };
  });
}

/** A turn that this host executes or has accepted and queued. */
export interface LiveTurn extends TurnJob {
  /** Gives back its place on this host; may be called more than once. */
  readonly freeSlot: () => void;
  isExecuting: boolean;
  /** Whether a message that interrupts it has a place already. */
  isReplaced: boolean;
}

/** A turn that the gates have admitted. */
export type NewTurn = Pick<LiveTurn, 'request' | 'session' | 'account' | 'freeSlot' | 'progress'>;

/** What earlier attempts of a turn have done. */
export interface TurnProgress {
  readonly steps: readonly AgentStep[];
  /** By the key of the interrupt. */
  readonly answers: ReadonlyMap<string, InterruptAnswer>;
}

/** A turn to execute and what belongs to it. */
export interface TurnJob {
  readonly live: LiveRun;
  readonly recorder: RunRecorder;
  readonly request: TurnRequest;
  readonly session: Session;
  readonly account: TurnAccount;
  /** Undefined in the first attempt. */
  readonly progress?: TurnProgress | undefined;
}
