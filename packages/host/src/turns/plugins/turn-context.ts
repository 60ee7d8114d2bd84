import type { Llms, Logger, TurnContext, TurnUser } from '@sibyl/plugin-kit';
import {
  type ClientCalls,
  createTurnEmit as createEmit,
  createShared,
  definitions,
  type LoadedPlugin,
  meetsCondition,
  type TurnCondition,
  type TurnEmit,
  type TurnState,
  type TurnUcan,
} from '@sibyl/plugin-kit/host';
import { describeIssues, type ReplyPart, runFrames, UserPreferences } from '@sibyl/protocol';
import type { DegradedService } from '../../agent/prompt.js';
import type { CallEvent } from '../../bus/event-bus.js';
import type { PendingClientCalls } from '../../bus/pending-client-calls.js';
import type { Message } from '../../store/message-store.js';
import type { SessionStates } from '../../store/plugin-stores.js';
import { findSubUser } from '../../store/room-store.js';
import type { Run } from '../../store/runs/run.js';
import type { Session } from '../../store/session-store.js';
import type { Store } from '../../store/store.js';
import { toMessageView } from '../run/message-parts.js';
import type { RunRecorder } from '../run/run-recorder.js';
import type { TurnRequest } from '../turn-request.js';
import { type HookLimit, type Hooks, withSignal } from './hooks.js';
import type { TurnReach } from './tool-policy.js';

/** A context without a signal: that of the turn or of a hook is added. */
type HookContext = Omit<TurnContext, 'signal'> & typeof definitions;

type SharedFunction = (turn: TurnContext) => unknown;

interface TurnContextsDeps {
  readonly request: TurnRequest;
  readonly facts: TurnFacts;
  readonly store: Pick<Store, 'secrets' | 'blobs'>;
  readonly sessionState: Pick<SessionStates, 'of'>;
  readonly createUcan: (plugin: string) => TurnUcan;
  readonly llm: Llms;
  readonly emit: TurnEmit;
  readonly client: ClientCalls;
  readonly warn: TurnContext['warn'];
  readonly hooks: Hooks;
  readonly reach: TurnReach;
  readonly loggerFor: (plugin: string) => Logger;
  readonly signal: AbortSignal;
}

/** The context of each plugin in one turn: shared facts, and only its own stored data. */
export class TurnContexts {
  /** Services that plugins report as unavailable in this turn. */
  readonly degraded: DegradedService[] = [];
  /** The plugins that the turn concerns, in their order. */
  readonly concerned = new Set<LoadedPlugin>();
  /** The same object until another plugin has shared preferences. */
  state: TurnState;
  private readonly deps: TurnContextsDeps;
  private readonly contexts = new Map<string, TurnContext>();
  private values: Readonly<Record<string, unknown>> = {};
  private shared = createShared(this.values);

  private constructor(deps: TurnContextsDeps) {
    this.deps = deps;
    this.state = buildTurnState(deps.request, undefined);
  }

  /** Collects the shared state of the plugins, in their order. */
  static async open(
    deps: TurnContextsDeps,
    plugins: readonly LoadedPlugin[],
  ): Promise<TurnContexts> {
    const contexts = new TurnContexts(deps);
    for (const plugin of plugins) {
      const { name, when } = plugin;
      if (!when || (await contexts.meets(name, when))) contexts.concerned.add(plugin);
      const entries = Object.entries(plugin.shared);
      if (entries.length > 0) await contexts.gather(plugin, entries);
    }
    return contexts;
  }

  private meets(plugin: string, when: TurnCondition): Promise<boolean> {
    const { facts, sessionState } = this.deps;
    const turn = { ...facts, shared: this.shared, sessionState: sessionState.of(plugin) };
    // If it cannot be known, the hooks of the plugin report why.
    return meetsCondition(when, turn).catch(() => true);
  }

  /** Outside of any tool call. */
  of(plugin: LoadedPlugin): TurnContext {
    const known = this.contexts.get(plugin.name);
    if (known) return known;
    const context = { ...this.make(plugin), signal: this.deps.signal };
    this.contexts.set(plugin.name, context);
    return context;
  }

  /** For a hook, with its own signal. */
  forHook(plugin: LoadedPlugin, limit: HookLimit): TurnContext & typeof definitions {
    return withSignal(this.make(plugin), limit);
  }

  private async gather(plugin: LoadedPlugin, entries: readonly [string, unknown][]): Promise<void> {
    const added: Record<string, unknown> = {};
    const computed: Promise<void>[] = [];
    for (const [key, value] of entries)
      if (typeof value !== 'function') added[key] = value;
      else if (this.concerned.has(plugin))
        computed.push(this.compute(plugin, key, value as SharedFunction, added));
    await Promise.all(computed);
    this.values = Object.freeze({ ...this.values, ...added });
    this.shared = createShared(this.values);
    if (Object.hasOwn(added, 'userPreferences'))
      this.state = buildTurnState(this.deps.request, added.userPreferences);
  }

  private async compute(
    plugin: LoadedPlugin,
    key: string,
    compute: SharedFunction,
    added: Record<string, unknown>,
  ): Promise<void> {
    const { hooks, signal } = this.deps;
    const call = { plugin: plugin.name, hook: `getSharedState: ${key}`, signal };
    const answer = await hooks.callOptional(call, (limit) => compute(this.forHook(plugin, limit)));
    if ('ok' in answer) added[key] = answer.ok;
  }

  private make({ name: plugin, config, services, tools }: LoadedPlugin): HookContext {
    const { facts, store, sessionState, createUcan, llm, emit, client, warn, loggerFor, reach } =
      this.deps;
    const { user, session, history, request } = facts;
    // Without copying an object, which takes several times as long.
    return {
      user,
      session,
      history,
      request,
      state: this.state,
      config,
      services,
      ucan: createUcan(plugin),
      sessionState: sessionState.of(plugin),
      secrets: store.secrets.of({ owner: user.did, plugin }),
      blobs: store.blobs.of({ owner: user.did, plugin }),
      llm,
      emit,
      client,
      shared: this.shared,
      logger: loggerFor(plugin),
      warn,
      degrade: (name, missing) =>
        void this.degraded.push({ name: `${name}`, missing: `${missing}` }),
      reach: reach.reach,
      permits: (name) =>
        !reach.isLimited ||
        reach.permitsTool(name, tools.find((tool) => tool.name === name)?.reach),
      toolCallId: '',
      tool: definitions.tool,
      subAgent: definitions.subAgent,
    };
  }
}

/** The facts of a turn that every plugin sees. */
export type TurnFacts = Pick<TurnContext, 'user' | 'session' | 'history' | 'request'>;

interface FactSources {
  readonly request: TurnRequest;
  readonly session: Session;
  /** The conversation up to and with the message to answer. */
  readonly messages: readonly Message[];
  readonly delegation: TurnUser['delegation'];
}

/** Frozen, because all plugins share it. */
export function buildTurnFacts({ request, session, messages, delegation }: FactSources): TurnFacts {
  const { requestId, client, caller, message, user } = request;
  const { tools, agActions, attachments = [], mcpInvocations = {} } = message;
  const { matrixHomeServer: homeServer, matrixAccessToken: accessToken } = user;
  const subUser = findSubUser(session);
  return {
    user: Object.freeze({
      did: caller.did,
      ...(subUser !== undefined && { subUser }),
      timezone: user.timezone ?? 'UTC',
      currentTime: new Date().toISOString(),
      ...((homeServer || accessToken) && {
        matrix: { ...(homeServer && { homeServer }), ...(accessToken && { accessToken }) },
      }),
      ...(delegation && { delegation }),
    }),
    session: Object.freeze({
      id: session.sessionId,
      requestId,
      roomId: session.roomId,
      client,
    }),
    history: Object.freeze(messages.slice(0, -1).map((message) => toMessageView(message))),
    request: Object.freeze({
      ...(tools && { tools }),
      ...(agActions && { agActions }),
      attachments,
      mcpInvocations,
    }),
  };
}

/** State of the turn beyond the conversation; any plugin can share the preferences. */
function buildTurnState(
  { message: { metadata = {} } }: TurnRequest,
  preferences: unknown,
): TurnState {
  const places: Partial<Record<(typeof PLACES)[number], string>> = {};
  for (const name of PLACES) {
    const value = metadata[name];
    if (typeof value === 'string' && value !== '') places[name] = value.slice(0, 512);
  }
  const userPreferences = (preferences && UserPreferences.safeParse(preferences).data) || {};
  return Object.freeze({ userPreferences, ...places, metadata });
}

/** Where the user is, as the client states it in the metadata of the message. */
const PLACES = ['editorRoomId', 'spaceId', 'currentEntityDid'] as const;

interface TurnEmitDeps {
  readonly run: Pick<Run, 'sessionId' | 'requestId'>;
  readonly recorder: Pick<RunRecorder, 'write'>;
  readonly logger: Logger;
  /** Whether to validate payloads: during development, not in production. */
  readonly checksEvents: boolean;
}

/** The `emit` of a turn's context: writes frames to the run and events to its session. */
export function createTurnEmit({ run, recorder, logger, checksEvents }: TurnEmitDeps): TurnEmit {
  const { sessionId, requestId } = run;
  return createEmit(run, (part) => {
    const about = { sessionId, requestId, event: part.event };
    try {
      const faults = checksEvents ? findErrors(part) : [];
      if (faults.length > 0) logger.error({ ...about, faults }, DROPPED);
      else recorder.write(part);
    } catch (err) {
      logger.error({ ...about, err }, DROPPED);
    }
  });
}

const DROPPED = 'event of a plugin dropped: invalid payload';

function findErrors({ event, data }: ReplyPart): string[] {
  return describeIssues(runFrames[event].safeParse(data).error?.issues ?? [], event);
}

type Request = Parameters<ClientCalls['call']>[0];

interface ClientCallsDeps {
  readonly run: Pick<Run, 'owner' | 'sessionId' | 'requestId'>;
  readonly recorder: Pick<RunRecorder, 'write'>;
  readonly pendingCalls: PendingClientCalls;
}

/** The `client` of a turn's context: sends calls as frames of the run and events of its session. */
export function createClientCalls({ run, recorder, pendingCalls }: ClientCallsDeps): ClientCalls {
  const { owner, sessionId, requestId } = run;
  const send = ({ event, toolName, args }: Request, toolCallId: string): CallEvent => {
    const payload = { sessionId, requestId, toolCallId, toolName, args };
    const written =
      event === 'action_call'
        ? recorder.write({ event, data: { ...payload, status: 'isRunning' } })
        : recorder.write({ event, data: payload });
    if (written?.event !== event) throw new Error(`${toolName} was not run: the turn has ended.`);
    return written;
  };
  return {
    call: async (request) =>
      pendingCalls.call({ owner, sessionId }, { ...request, send: (id) => send(request, id) }),
  };
}
