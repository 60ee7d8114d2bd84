import type { TurnContext, TurnUser } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import type { ReplyPart, ToolCall } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { type AgentRequest, SummaryCache } from '../../agent/agent.js';
import { toModelMessages } from '../../agent/conversation.js';
import { createLlms } from '../../agent/model-call.js';
import { composePrompt } from '../../agent/prompt.js';
import type { DelegatedAuthority } from '../../auth/delegated-authority.js';
import type { OracleIdentity } from '../../auth/oracle-identity.js';
import type { LiveRules, UserRules } from '../../auth/user-rules.js';
import type { ServerEvent } from '../../bus/event-bus.js';
import type { PendingClientCalls } from '../../bus/pending-client-calls.js';
import type { Config } from '../../config/config.js';
import type { ModelRole } from '../../models/model.js';
import type { Models } from '../../models/models.js';
import type { Metrics } from '../../observability/metrics.js';
import { type Message, toQuestionParts } from '../../store/message-store.js';
import type { Run } from '../../store/runs/run.js';
import type { Store } from '../../store/store.js';
import { repeatRead } from '../../store/store-errors.js';
import { Capabilities, type TurnTool } from '../plugins/capabilities.js';
import type { Hooks } from '../plugins/hooks.js';
import { MiddlewareChain } from '../plugins/middlewares.js';
import { type RanCall, ToolPolicy, TurnReach } from '../plugins/tool-policy.js';
import { applyToolChoice, gatherTools } from '../plugins/tools.js';
import {
  buildTurnFacts,
  createClientCalls,
  createTurnEmit,
  TurnContexts,
} from '../plugins/turn-context.js';
import type { TurnAccess } from '../start/turn-access.js';
import type { TurnRequest } from '../turn-request.js';
import type { ActiveRun } from './active-run.js';
import { OutputLimit } from './model-limits.js';

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

/** How the host and its plugins say something besides the answer. */
interface Voice {
  readonly warn: TurnContext['warn'];
  readonly emit: (part: ReplyPart) => ServerEvent | undefined;
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

  async prepare(active: ActiveRun, voice: Voice): Promise<AgentRequest> {
    const { warn } = voice;
    const { run, request, session, recorder, account, progress, signal } = active;
    const { store, plugins, hooks, settings } = this.deps;
    const { owner, sessionId } = run;
    const [messages, delegation, rules] = await Promise.all([
      this.readHistory(active, warn),
      this.findDelegation(request),
      this.read(active, () => this.openRules(active)),
    ]);
    const facts = buildTurnFacts({ request, session, messages, delegation });
    const models = this.selectModels(active);
    const policy = this.createPolicy(active, rules);
    const { surface, message, caller } = request;
    const { caveats } = caller.accessKey ?? {};
    const reach = new TurnReach({ caveats, subUser: facts.user.subUser });
    const sessionState = store.sessionState.ofTurn({ owner, sessionId });
    const contexts = await this.openContexts(active, voice, {
      ...{ facts, models, policy, reach, sessionState },
    });
    const chain = new MiddlewareChain({ contexts, hooks, reach, signal });
    const shared = {
      smallModel: models.get('utility'),
      limits: {
        steps: { limit: settings.maxSteps, taken: 0 },
        contextTokens: settings.contextTokens,
      },
      summaries: this.summaries,
      meter: account,
      onToolEnd: ({ name, status }: ToolCall, seconds: number) =>
        this.deps.metrics.observeTool(name, status, seconds),
    };
    const tools = await gatherTools({
      ...shared,
      ...{ models, plugins, contexts, policy, reach, chain, hooks, warn, surface, signal },
    });
    const described = listDescribed(plugins, tools, reach);
    const capabilities = await this.read(active, () =>
      Capabilities.open({ plugins: described, tools, state: sessionState.of(HOST), chain }),
    );
    const model = models.get('main');
    return {
      ...shared,
      model,
      system: this.buildPrompt(contexts, capabilities, request),
      messages: toModelMessages(messages, {
        timezone: facts.user.timezone,
        now: Date.now(),
        degraded: contexts.degraded,
      }),
      tools: () => capabilities.tools,
      ...applyToolChoice(tools, surface),
      reasoning: message.reasoningEffort,
      responseSchema: message.responseSchema,
      hooks: chain.aroundModel({ agent: 'main', model }),
      journal: recorder.openJournal(progress?.steps ?? [], progress?.answers ?? new Map()),
      signal,
    };
  }

  /** The messages that the model sees, the question last. */
  private async readHistory(active: ActiveRun, warn: Voice['warn']): Promise<Message[]> {
    const { run, request } = active;
    const { store, settings } = this.deps;
    const { owner, sessionId, branch, turn: throughTurn } = run;
    const bytes = settings.contextTokens * HISTORY_BYTES_PER_TOKEN;
    const recent = await this.read(active, () =>
      store.messages.recent({ owner, sessionId, branch, throughTurn, bytes }),
    );
    // Only the first message of a session has no parent.
    if (recent[0]?.parent !== undefined) warn('history_shortened', TOO_OLD);
    const stored = recent.filter((message) => isPrompted(message, run));
    return [...toEarlierMessages(request, run), ...stored];
  }

  private read<T>({ signal }: ActiveRun, work: () => Promise<T>): Promise<T> {
    return repeatRead(work, { waitMs: this.deps.settings.storeWaitMs, signal });
  }

  private openContexts(
    { run, request, recorder, account, signal }: ActiveRun,
    { warn, emit }: Voice,
    {
      models,
      policy,
      ...known
    }: Pick<Parameters<typeof TurnContexts.open>[0], 'facts' | 'reach' | 'sessionState'> & {
      readonly models: Pick<Models, 'get'>;
      readonly policy: ToolPolicy;
    },
  ): Promise<TurnContexts> {
    const { plugins, store, hooks, pendingCalls, checksEvents, logger } = this.deps;
    return TurnContexts.open(
      {
        ...known,
        request,
        store,
        createUcan: (plugin) => policy.restrictUcan(plugin),
        llm: createLlms({ modelFor: models.get, meter: account, signal }),
        emit: createTurnEmit({ run, recorder: { write: emit }, logger, checksEvents }),
        client: createClientCalls({ run, recorder, pendingCalls }),
        warn: (code, message) =>
          warn(`${code}`.slice(0, WARNING_LIMIT), `${message}`.slice(0, WARNING_LIMIT)),
        hooks,
        loggerFor: (plugin) => this.loggers.get(plugin) ?? logger,
        signal,
      },
      plugins,
    );
  }

  /** Until the run ends. */
  private async openRules({ run, outcome }: ActiveRun): Promise<LiveRules> {
    const rules = await this.deps.rules.open(run.owner);
    void outcome.then(() => rules.close());
    return rules;
  }

  private createPolicy(active: ActiveRun, rules: LiveRules): ToolPolicy {
    const { hooks, authority, access, settings } = this.deps;
    const { caller } = active.request;
    const onUse = access.watchUses(active);
    const createUcan = (plugin: string) => authority.turnUcan({ caller, plugin, onUse });
    const onRan = (call: RanCall) => active.recorder.recordCall(call);
    return new ToolPolicy({ operator: settings.approvals, rules, hooks, createUcan, onRan });
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

  private selectModels(active: ActiveRun): Pick<Models, 'get'> {
    const { models, settings } = this.deps;
    const output = new OutputLimit({
      maxCharacters: settings.maxCharacters,
      onReached: (error) => active.fail(error),
    });
    const { model } = active.request.message;
    const main = (model && models.find(model)) || models.get('main');
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
