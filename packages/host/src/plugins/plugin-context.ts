import { randomUUID } from 'node:crypto';
import type {
  DelegatedTurns,
  Embeddings,
  HostMessages,
  Llms,
  OracleUcan,
  PluginDatabase,
  SetupContext,
  TurnOutcome,
} from '@sibyl/plugin-kit';
import type { EndedInterrupt, PluginTurn, PluginTurns } from '@sibyl/plugin-kit/chat';
import type { DelegatedTurn, SetupHook, SetupHooks } from '@sibyl/plugin-kit/host';
import type { OpenInterrupt } from '@sibyl/plugin-kit/surface';
import {
  describeIssues,
  OracleError,
  type ReplyPart,
  SendMessage,
  type SessionChange,
} from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import { withTimeout } from '@sibyl/server-kit';
import type { ConfigIssue } from '@sibyl/server-kit/environment';
import type { Logger } from 'pino';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Holders } from '../auth/rate-limits.js';
import type { RunGrants } from '../auth/run-grants.js';
import { type HostBus, type HostLiveness, isHostId } from '../bus/host-bus.js';
import type { Models } from '../models/models.js';
import type { Run } from '../store/runs/run.js';
import type { RunKey } from '../store/schema/runs.js';
import type { SessionStore } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import type { RunReader } from '../turns/read/run-reader.js';
import { readError } from '../turns/run/run-end.js';
import { readTimezone, type TurnRequest } from '../turns/turn-request.js';
import {
  createPluginIssue,
  describeError,
  type SelectedPlugin,
  switchOff,
} from './select-plugins.js';
import { createSurface, type TurnServices, toQuestion } from './surface.js';

/** The services that the host gives to every plugin. */
export interface HostServices extends DelegationServices {
  readonly logger: Logger;
  readonly oracle: OracleIdentity;
  readonly publicUrl: string;
  readonly store: Store;
  readonly fetch: SafeFetch;
  readonly ucan: OracleUcan;
  readonly llm: Llms;
  readonly embeddings: Embeddings | undefined;
  readonly models: Pick<Models, 'list'>;
  readonly bus: HostBus;
  readonly liveness: Pick<HostLiveness, 'findDeadHosts'>;
  readonly holders: Pick<Holders, 'find'>;
  /** Resolves once the host is ready to take messages. */
  readonly turns: Promise<TurnServices>;
}

interface ContextDeps {
  readonly selected: SelectedPlugin;
  readonly database: PluginDatabase;
  readonly availablePlugins: ReadonlySet<string>;
}

export function createSetupContext(
  { selected, database, availablePlugins }: ContextDeps,
  {
    logger,
    oracle,
    publicUrl,
    store,
    fetch,
    ucan,
    llm,
    embeddings,
    models,
    bus,
    liveness,
    holders,
    turns,
    ...delegation
  }: HostServices,
): Omit<SetupContext, 'rooms' | 'storedRooms' | 'shared'> {
  const { name: plugin, config } = selected;
  const { did, name, entityDid } = oracle;
  return {
    config,
    oracle: { did, name, ...(entityDid && { entityDid }) },
    publicUrl,
    availablePlugins,
    logger: logger.child({ plugin }),
    database,
    secrets: (owner) => store.secrets.of({ owner, plugin }),
    fetch,
    ucan,
    turns: createPluginTurns({ plugin, oracle, sessions: store.sessions, ready: turns, logger }),
    delegatedTurns: createDelegatedTurns({ ...delegation, plugin, store, ready: turns }),
    hosts: createHostMessages({ bus, liveness, store }, plugin),
    findHolder: (owner) => holders.find(owner),
    surface: createSurface({ plugin, store, models, ready: turns }),
    llm,
    embeddings,
  };
}

const createHostMessages = (
  { bus, liveness, store }: Pick<HostServices, 'bus' | 'liveness' | 'store'>,
  plugin: string,
): HostMessages => ({
  hostId: bus.hostId,
  send: (to, message) => bus.send(to, 'plugin-message', { plugin, message }),
  on: (listener) => {
    bus.on('plugin-message', ({ plugin: receiver, message }) => {
      if (receiver === plugin) listener(message);
    });
  },
  findDead: async (hostIds) => {
    // A plugin may hold what has no host.
    const dead = await liveness.findDeadHosts(hostIds.filter(isHostId));
    // Until other hosts have ended or continued its turns, a plugin would see them running.
    const busy = dead.length > 0 ? await store.runs.hosts() : [];
    return dead.filter((hostId) => !busy.includes(hostId));
  },
});

/** How long a hook may take while the host starts. */
const LIMIT = {
  ms: 30_000,
  message: 'it took longer than 30 s',
  signal: new AbortController().signal,
};

/** Calls the hooks of one plugin while the host starts, and collects issues. */
export class HookCalls implements SetupHooks {
  readonly issues: ConfigIssue[] = [];

  constructor(private readonly plugin: string) {}

  get hasFailed(): boolean {
    return this.issues.length > 0;
  }

  async call<T>({ hook, run, check, otherwise }: SetupHook<T>): Promise<T> {
    try {
      const value = await withTimeout(LIMIT, async () => run());
      if (value === undefined) return otherwise;
      const fault = check(value);
      if (!fault) return value;
      this.fail(`${hook} returned an invalid value: ${fault}`);
    } catch (error) {
      this.fail(`${hook} failed: ${describeError(error)}`);
    }
    return otherwise;
  }

  fail(problem: string, remedy = `Fix it, or ${switchOff(this.plugin)}`): void {
    this.issues.push(createPluginIssue(this.plugin, problem, remedy));
  }
}

interface PluginTurnsDeps {
  readonly plugin: string;
  readonly oracle: OracleIdentity;
  readonly sessions: SessionStore;
  /** Resolves once the host is ready; earlier messages wait for it. */
  readonly ready: Promise<TurnServices>;
  readonly logger: Logger;
}

const USER = /^[A-Za-z0-9._:%-]{1,200}$/;

/** Turns for users that a plugin has authenticated; each belongs to `did:<plugin>:<user>`. */
function createPluginTurns(deps: PluginTurnsDeps): PluginTurns {
  const { plugin, oracle, sessions, ready } = deps;
  return {
    openSession: async (user) => {
      const { sessionId } = await sessions.create({
        owner: toOwner(plugin, user),
        oracleDid: oracle.did,
        oracleName: oracle.name,
        oracleEntityDid: oracle.entityDid,
      });
      return { sessionId };
    },
    start: async (turn) => {
      const owner = toOwner(plugin, turn.user);
      const { turns, reader } = await ready;
      return readRun(reader, { owner, runId: await turns.start(toTurnRequest(owner, turn)) });
    },
    join: async (run) => readRun((await ready).reader, run),
    pending: async ({ owner, sessionId }) => {
      const { paused } = await ready;
      return (await paused.pending({ owner, sessionId })).map(toQuestion);
    },
    answer: async ({ owner, id, value }) =>
      (await ready).paused.answer({ owner, interruptId: id, value }),
    deny: async (denial) => {
      const { runId, pending } = await (await ready).approvals.deny(denial);
      return { runId, ...(pending && { pending }) };
    },
    abort: async ({ user, sessionId }) =>
      (await ready).turns.abort({ owner: toOwner(plugin, user), sessionId }),
    findPaused: async (runs) => (await ready).paused.findPaused(runs),
    continuation: async (run) => {
      const continuation = await (await ready).paused.continuation(run);
      return continuation && { ...continuation, questions: continuation.interrupts.map(toEnded) };
    },
    onTurn: (listener) => observeTurns(deps, listener),
  };
}

/** Without the decision about a call, which has the user's reason and arguments. */
const toEnded = ({
  outcome,
  value,
  ...question
}: OpenInterrupt & Pick<EndedInterrupt, 'outcome' | 'value'>): EndedInterrupt => ({
  ...toQuestion(question),
  outcome,
  value: question.isApproval ? undefined : value,
});

const TURN_CHANGES: ReadonlySet<SessionChange> = new Set(['turn_started', 'turn_ended', 'deleted']);

function observeTurns(
  { ready, plugin, logger }: PluginTurnsDeps,
  listener: Parameters<PluginTurns['onTurn']>[0],
): () => void {
  let isStopped = false;
  let stop = () => {};
  // The host does not start otherwise.
  ready.then(
    ({ changes }) => {
      if (isStopped) return;
      stop = changes.observe((session, change) => {
        if (!TURN_CHANGES.has(change)) return;
        try {
          listener(session);
        } catch (err) {
          logger.error({ err, plugin }, 'a listener of turns failed');
        }
      });
    },
    () => {},
  );
  return () => {
    isStopped = true;
    stop();
  };
}

async function readRun(
  reader: RunReader,
  key: Parameters<RunReader['find']>[0],
): Promise<AsyncIterable<ReplyPart>> {
  const run = await reader.find(key);
  return replyParts((signal) => reader.read(run, 0, signal));
}

function toOwner(plugin: string, user: string): string {
  if (USER.test(user)) return `did:${plugin}:${user}`;
  throw new OracleError('bad_request', { message: 'A user is 1 to 200 of A-Z a-z 0-9 . _ : % -' });
}

function toTurnRequest(owner: string, turn: PluginTurn): TurnRequest {
  const { sessionId, message, client, idempotencyKey, timezone: named, metadata } = turn;
  const { timezone, warnings } = readTimezone(named);
  return {
    caller: { did: owner, expiration: Number.MAX_SAFE_INTEGER, presentedDelegation: undefined },
    sessionId,
    requestId: randomUUID(),
    message: readContent({ message, timezone: named, metadata }),
    user: { timezone },
    warnings,
    client,
    idempotencyKey,
  };
}

/** Checks a message of a plugin as that of a client is checked. */
function readContent(given: { readonly message: string; readonly [field: string]: unknown }) {
  const { data, error } = SendMessage.safeParse(given);
  if (error)
    throw new OracleError('validation_failed', {
      message: describeIssues(error.issues, 'message'),
    });
  const { attachments: _, ...content } = data;
  return { ...content, message: given.message };
}

type Frames = ReturnType<RunReader['read']>;

/** The frames one by one; releases the log of the run when the reader stops. */
async function* replyParts(read: (signal: AbortSignal) => Frames): AsyncGenerator<ReplyPart> {
  const left = new AbortController();
  try {
    for await (const frames of read(left.signal))
      for (const { event, data } of frames) yield { event, data: JSON.parse(data) } as ReplyPart;
  } finally {
    left.abort();
  }
}

/** What plugins need to run turns as users who are not there. */
interface DelegationServices {
  readonly grants: RunGrants;
  readonly authority: DelegatedAuthority;
}

interface DelegatedTurnsDeps extends DelegationServices {
  readonly plugin: string;
  readonly store: Pick<Store, 'runs' | 'messages'>;
  /** Resolves once the host is ready. */
  readonly ready: Promise<TurnServices>;
}

function createDelegatedTurns(deps: DelegatedTurnsDeps): DelegatedTurns {
  const { plugin, grants, authority, store, ready } = deps;
  return {
    authorize: (request) => grants.store(request),
    check: async (permission) => {
      try {
        await grants.assertValid(permission);
        return undefined;
      } catch (error) {
        // A failure that may pass says nothing about the delegation.
        if (!(error instanceof OracleError) || error.status >= 429) throw error;
        return error.message;
      }
    },
    release: (key) => grants.remove(key),
    onRevoked: (listener) => authority.onRevocation(listener),
    openSession: async (session) => {
      const { sessionId } = await (await ready).sessions.open(session);
      return { sessionId };
    },
    removeEmptySession: async (session) => (await ready).sessions.removeEmpty(session),
    start: async (turn) => {
      const runId = await (await ready).turns.start(toDelegatedRequest(turn));
      const { owner, cid } = turn;
      authority.recordUse({ owner, cid, purpose: 'schedule', plugin });
      return { runId };
    },
    abortPaused: async (key) => {
      const run = await findLatestAttempt(store, key);
      return run?.status === 'paused' && (await ready).turns.abort(run);
    },
    abort: async (turn) => (await ready).turns.abort(turn),
    outcome: (key) => readOutcome(store, key),
  };
}

function toDelegatedRequest(turn: DelegatedTurn): TurnRequest {
  const { owner, cid, resource, caveats, sessionId, message, client, idempotencyKey, metadata } =
    turn;
  const { timezone, warnings } = readTimezone(turn.timezone);
  return {
    // Credentials of other services come from the delegation that the user has stored for them.
    caller: {
      did: owner,
      expiration: Number.POSITIVE_INFINITY,
      // Revoking the delegation ends the turn, as it ends turns of callers who logged in with one.
      loginCids: [cid],
      presentedDelegation: undefined,
    },
    sessionId,
    requestId: randomUUID(),
    message: readContent({ message, metadata }),
    user: { timezone },
    warnings,
    client,
    permission: { owner, cid, resource, caveats },
    waitsForPaused: true,
    idempotencyKey,
  };
}

async function findLatestAttempt(
  { runs }: Pick<DelegatedTurnsDeps['store'], 'runs'>,
  key: RunKey,
): Promise<Run | undefined> {
  const run = await runs.find(key);
  return run?.status === 'continued' ? runs.latestAttempt(run) : run;
}

async function readOutcome(
  { runs, messages }: DelegatedTurnsDeps['store'],
  { owner, runId }: RunKey,
): Promise<TurnOutcome | undefined> {
  const run = await findLatestAttempt({ runs }, { owner, runId });
  if (!run || run.status === 'continued') return undefined;
  const answer = await messages.find({ owner, messageId: run.messageId });
  return {
    runId: run.runId,
    status: run.status,
    text: answer?.content ?? '',
    ...describeFailure(run),
  };
}

function describeFailure(run: Run): Pick<TurnOutcome, 'error'> {
  const error = readError(run);
  return error ? { error: { code: error.code, message: error.message } } : {};
}
