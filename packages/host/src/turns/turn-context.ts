import type {
  ClientCalls,
  Llms,
  Logger,
  TurnContext,
  TurnEmit,
  TurnState,
  TurnUcan,
  TurnUser,
} from '@sibyl/plugin-kit';
import {
  createTurnEmit as createEmit,
  createShared,
  type LoadedPlugin,
} from '@sibyl/plugin-kit/rules';
import { describeIssues, type ReplyPart, runFrames, UserPreferences } from '@sibyl/protocol';
import type { Logger as HostLogger } from 'pino';
import type { DegradedService } from '../agent/prompt.js';
import type { CallEvent, PendingClientCalls } from '../bus/pending-client-calls.js';
import type { Message } from '../store/message.js';
import type { Run } from '../store/runs/run.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import type { Hooks } from './hooks.js';
import type { RunRecorder } from './run-recorder.js';
import type { TurnRequest } from './turn-request.js';
import { toMessageView } from './turn-writer.js';

type Shared = Readonly<Record<string, unknown>>;

interface TurnContextsParts {
  readonly request: TurnRequest;
  readonly facts: TurnFacts;
  readonly store: Pick<Store, 'sessionState' | 'secrets' | 'blobs'>;
  readonly ucan: TurnUcan;
  readonly llm: Llms;
  readonly emit: TurnEmit;
  readonly client: ClientCalls;
  readonly warn: TurnContext['warn'];
  readonly hooks: Hooks;
  readonly logger: HostLogger;
  readonly signal: AbortSignal;
}

/** What each plugin sees of one turn: the same facts, and of all that is kept only its own. */
export class TurnContexts {
  /** What plugins say the agent cannot do in this turn. */
  readonly degraded: DegradedService[] = [];
  private readonly parts: TurnContextsParts;
  private readonly contexts = new Map<string, TurnContext>();
  private shared: Shared = {};

  private constructor(parts: TurnContextsParts) {
    this.parts = parts;
  }

  /** Asks the plugins, in their order, for what they share with the others. */
  static async open(
    parts: TurnContextsParts,
    plugins: readonly LoadedPlugin[],
  ): Promise<TurnContexts> {
    const contexts = new TurnContexts(parts);
    for (const plugin of plugins) await contexts.gather(plugin);
    return contexts;
  }

  get state() {
    return stateOf(this.parts.request, this.shared);
  }

  /** Outside of any tool call. */
  of(plugin: LoadedPlugin): TurnContext {
    const known = this.contexts.get(plugin.name);
    if (known) return known;
    const context = this.make(plugin);
    this.contexts.set(plugin.name, context);
    return context;
  }

  private async gather(plugin: LoadedPlugin): Promise<void> {
    const entries = Object.entries(plugin.shared);
    if (entries.length === 0) return;
    // Made for this alone: what comes later in the order is not there yet.
    const turn = this.make(plugin);
    const values = await Promise.all(
      entries.map(async ([key, value]) => {
        if (typeof value !== 'function') return [[key, value] as const];
        const hook = `getSharedState: ${key}`;
        const call = { plugin: plugin.name, hook, signal: this.parts.signal };
        const answer = await this.parts.hooks.ask(call, (signal) => value({ ...turn, signal }));
        return 'ok' in answer ? [[key, answer.ok] as const] : [];
      }),
    );
    this.shared = Object.freeze({ ...this.shared, ...Object.fromEntries(values.flat()) });
  }

  private make({ name: plugin, config, services }: LoadedPlugin): TurnContext {
    const { facts, store, ucan, llm, emit, client, warn, logger, signal } = this.parts;
    const { did: owner } = facts.user;
    const { id: sessionId, requestId } = facts.session;
    return {
      ...facts,
      state: this.state,
      config,
      services,
      ucan,
      sessionState: store.sessionState.of({ owner, sessionId, plugin }),
      secrets: store.secrets.of({ owner, plugin }),
      blobs: store.blobs.of({ owner, plugin }),
      llm,
      emit,
      client,
      shared: createShared(this.shared),
      logger: logger.child({ plugin, requestId, sessionId }),
      warn,
      degrade: (name, missing) =>
        void this.degraded.push({ name: `${name}`, missing: `${missing}` }),
      signal,
      toolCallId: '',
    };
  }
}

/** What every plugin may know of a turn. */
export type TurnFacts = Pick<TurnContext, 'user' | 'session' | 'history' | 'request'>;

interface FactSources {
  readonly request: TurnRequest;
  readonly session: Session;
  /** The conversation up to and with the message to answer. */
  readonly messages: readonly Message[];
  readonly delegation: TurnUser['delegation'];
}

/** Frozen, since all plugins see the same. */
export function turnFacts({ request, session, messages, delegation }: FactSources): TurnFacts {
  const { id, roomId } = session;
  const { requestId, client } = request;
  return {
    user: Object.freeze({ ...userOf(request), ...(delegation && { delegation }) }),
    session: Object.freeze({ id, requestId, roomId, client }),
    history: Object.freeze(messages.slice(0, -1).map(toMessageView)),
    request: Object.freeze(partsOf(request)),
  };
}

/** What the turn knows beyond the conversation; preferences come from whoever shares them. */
function stateOf(
  { message: { metadata = {} } }: TurnRequest,
  shared: Readonly<Record<string, unknown>>,
): TurnState {
  const text = (name: string) => {
    const value = metadata[name];
    return typeof value === 'string' && value !== '' ? { [name]: value.slice(0, 512) } : {};
  };
  return Object.freeze({
    userPreferences: UserPreferences.safeParse(shared.userPreferences ?? {}).data ?? {},
    ...text('editorRoomId'),
    ...text('spaceId'),
    ...text('currentEntityDid'),
    metadata,
  });
}

function userOf({ caller, user }: TurnRequest): TurnUser {
  const { matrixHomeServer: homeServer, matrixAccessToken: accessToken } = user;
  return {
    did: caller.did,
    timezone: user.timezone ?? 'UTC',
    currentTime: new Date().toISOString(),
    ...((homeServer || accessToken) && {
      matrix: { ...(homeServer && { homeServer }), ...(accessToken && { accessToken }) },
    }),
  };
}

function partsOf({ message }: TurnRequest): TurnContext['request'] {
  const { tools, agActions, attachments = [], mcpInvocations = {} } = message;
  return { ...(tools && { tools }), ...(agActions && { agActions }), attachments, mcpInvocations };
}

interface TurnEmitParts {
  readonly run: Pick<Run, 'sessionId' | 'requestId'>;
  readonly recorder: Pick<RunRecorder, 'write'>;
  readonly logger: Logger;
  /** Whether payloads are checked first: while plugins are written, not while they are served. */
  readonly checksEvents: boolean;
}

/** The `emit` of a turn's context: what a plugin says becomes a frame of the run and an event of its session. */
export function createTurnEmit({ run, recorder, logger, checksEvents }: TurnEmitParts): TurnEmit {
  const { sessionId, requestId } = run;
  return createEmit(run, (part) => {
    const about = { sessionId, requestId, event: part.event };
    try {
      const faults = checksEvents ? faultsOf(part) : [];
      if (faults.length > 0) logger.error({ ...about, faults }, DROPPED);
      else recorder.write(part);
    } catch (err) {
      logger.error({ ...about, err }, DROPPED);
    }
  });
}

const DROPPED = 'an event of a plugin was dropped: its payload cannot be used';

function faultsOf({ event, data }: ReplyPart): string[] {
  return describeIssues(runFrames[event].safeParse(data).error?.issues ?? [], event);
}

type Request = Parameters<ClientCalls['call']>[0];

interface ClientCallsParts {
  readonly run: Pick<Run, 'owner' | 'sessionId' | 'requestId'>;
  readonly recorder: Pick<RunRecorder, 'write'>;
  readonly pendingCalls: PendingClientCalls;
}

/** The `client` of a turn's context: calls go out as frames of the run and events of its session. */
export function createClientCalls({ run, recorder, pendingCalls }: ClientCallsParts): ClientCalls {
  const { owner, sessionId, requestId } = run;
  const send = ({ event, toolName, args }: Request, toolCallId: string): CallEvent => {
    const payload = { sessionId, requestId, toolCallId, toolName, args };
    const told =
      event === 'action_call'
        ? recorder.write({ event, data: { ...payload, status: 'isRunning' } })
        : recorder.write({ event, data: payload });
    if (told?.event !== event) throw new Error(`${toolName} was not run: the turn has ended.`);
    return told;
  };
  return {
    call: async (request) =>
      pendingCalls.call({ owner, sessionId }, { ...request, send: (id) => send(request, id) }),
  };
}
