import { randomUUID } from 'node:crypto';
import {
  canonicalJson,
  type JsonObject,
  OracleError,
  type ReplyPart,
  RUN_ABILITY,
} from '@sibyl/protocol';
import type { SafeFetchInit } from '@sibyl/safe-fetch';
import type {
  Blobs,
  ClientCalls,
  Llms,
  Logger,
  OracleUcan,
  RoomPlace,
  RoomState,
  Secrets,
  SessionState,
  SetupContext,
  TurnUcan,
  WantedCapability,
} from '../context.js';
import type { ModelRole } from '../model.js';
import type { OraclePlugin } from '../plugin.js';
import type { Embeddings } from '../search/embeddings.js';
import type { Surface } from '../surface/surface.js';
import {
  type DelegatedTurn,
  type DelegatedTurns,
  type PluginTurn,
  type PluginTurns,
  type RunPermission,
  type TurnOutcome,
} from '../turns.js';

/** A prompt that a plugin sends to a model. */
export interface ModelPrompt {
  readonly role: ModelRole;
  readonly system?: string;
  readonly prompt: string;
}

/** A call that a plugin makes to the user's page. */
export type PageCall = Omit<Parameters<ClientCalls['call']>[0], 'signal'>;

/** What surrounds the plugins of a test; using what is not given throws. */
export interface TestRuntimeOptions {
  /** Including the plugins they depend on. */
  readonly plugins: readonly OraclePlugin[];
  /** Environment variables. */
  readonly config?: Readonly<Record<string, string>>;
  /** Answers outgoing requests. */
  readonly fetch?: (url: string | URL, init?: SafeFetchInit) => Promise<Response>;
  /** Answers the prompts of plugins, and the turns they start. */
  readonly answer?: (prompt: ModelPrompt) => string | Promise<string>;
  /** Answers calls to the user's page. */
  readonly page?: (call: PageCall) => unknown;
  /** What users have delegated to the oracle. */
  readonly delegated?: readonly WantedCapability[];
  /** Compares texts by meaning; none if it is left out. */
  readonly embeddings?: Embeddings;
}

/** The default user. */
export const TEST_USER = 'did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH';
export const TEST_ORACLE = 'did:key:z6MktwupdmLXVVqTzCw4i46r4uGyosGXRnR3XjN4Zq7oMMsw';

/** A line that a plugin wrote to the log. */
export interface LogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: object;
  readonly message: string;
}

/** Replaces the host in tests. */
export class TestHost {
  readonly memory = new MemoryStore();
  readonly ucan = createOracleUcan();
  readonly oracle = { did: TEST_ORACLE, name: 'Test oracle' };
  /** What the plugins logged. */
  readonly log: LogLine[] = [];
  /** The turns that plugins started. */
  readonly startedTurns: PluginTurn[] = [];
  /** The turns that plugins started as users. */
  readonly delegatedTurns = new TestDelegatedTurns((prompt) => this.#answer(prompt));
  readonly #closeTasks: (() => void | Promise<void>)[] = [];

  constructor(readonly options: TestRuntimeOptions) {}

  readonly logger: Logger = {
    info: (fields, message) => void this.log.push({ level: 'info', fields, message }),
    warn: (fields, message) => void this.log.push({ level: 'warn', fields, message }),
    error: (fields, message) => void this.log.push({ level: 'error', fields, message }),
  };

  readonly fetch: SetupContext['fetch'] = async (input, init) => {
    const url = input instanceof Request ? input.url : input;
    if (this.options.fetch) return this.options.fetch(url, init);
    throw new Error(`There is no network in this test: set the option \`fetch\` for ${url}`);
  };

  readonly llm: Llms = {
    get: (role) => ({
      generate: async ({ system, prompt }) => {
        const text = await this.#answer({ role, prompt, ...(system && { system }) });
        const use = { model: 'test', input: prompt.length, output: text.length, cached: 0 };
        return { text, use };
      },
    }),
  };

  readonly turns: PluginTurns = {
    openSession: async () => ({ sessionId: randomUUID() }),
    start: async (turn) => {
      this.startedTurns.push(turn);
      return this.#reply(turn);
    },
    join: async () => {
      throw new OracleError('run_not_found');
    },
    abort: async () => false,
    pending: async () => [],
    answer: async () => {
      throw new OracleError('interrupt_not_found');
    },
    deny: async () => {
      throw new OracleError('approval_not_found');
    },
    findPaused: async () => [],
    continuation: async () => ({ isStopped: false, interrupts: [] }),
    onTurn: () => () => {},
  };

  readonly surface: Surface = {
    keepsAccess: async () => true,
    for: () => {
      throw new OracleError('not_found', {
        message: 'There are no turns of callers in this test: use a host',
      });
    },
    toError: (error) => (error instanceof OracleError ? error : new OracleError('internal_error')),
    models: [],
    listPlugins: async () => [],
  };

  onClose(task: () => void | Promise<void>): void {
    this.#closeTasks.push(task);
  }

  async close(): Promise<void> {
    for (const task of this.#closeTasks.splice(0).reverse()) await task();
  }

  async #answer(prompt: Parameters<NonNullable<TestRuntimeOptions['answer']>>[0]) {
    if (this.options.answer) return this.options.answer(prompt);
    throw new Error('There is no model in this test: set the option `answer`');
  }

  async *#reply({ sessionId, message }: PluginTurn): AsyncGenerator<ReplyPart> {
    const runId = randomUUID();
    yield { event: 'run', data: { runId, sessionId, requestId: randomUUID() } };
    const content = await this.#answer({ role: 'main', prompt: message });
    yield { event: 'message', data: { content, timestamp: new Date().toISOString() } };
    yield { event: 'done', data: { runId, messageId: randomUUID(), status: 'finished' } };
  }
}

/** The host's store, in memory. */
export class MemoryStore {
  readonly #values = new Map<string, unknown>();

  readonly rooms: RoomState = {
    read: async (place, key) => copyJson(this.#values.get(roomKey(place, key)) as JsonObject),
    update: async (place, key, change) => {
      const id = roomKey(place, key);
      const changed = change(copyJson(this.#values.get(id) as JsonObject | undefined));
      this.#values.set(id, copyJson(changed));
      return changed;
    },
  };

  sessionState(...place: readonly string[]): SessionState {
    const toKey = (key: string) => JSON.stringify(['state', ...place, key]);
    return {
      get: async (key) => copyJson(this.#values.get(toKey(key))),
      set: async (key, value) => this.#set(toKey(key), copyJson(value)),
    };
  }

  secrets(...place: readonly string[]): Secrets {
    const toKey = (name: string) => JSON.stringify(['secret', ...place, name]);
    return {
      get: async (name) => this.#values.get(toKey(name)) as string | undefined,
      set: async (name, value) => this.#set(toKey(name), value),
    };
  }

  blobs(...place: readonly string[]): Blobs {
    const toKey = (id: string) => JSON.stringify(['blob', ...place, id]);
    return {
      put: async (blob) => {
        const id = randomUUID();
        this.#set(toKey(id), blob);
        return id;
      },
      get: async (id) => this.#values.get(toKey(id)) as Awaited<ReturnType<Blobs['get']>>,
      delete: async (id) => this.#set(toKey(id), undefined),
    };
  }

  #set(key: string, value: unknown): void {
    if (value === undefined) this.#values.delete(key);
    else this.#values.set(key, value);
  }
}

const roomKey = ({ owner, roomId = getOwnRoom(owner) }: RoomPlace, key: string) =>
  JSON.stringify(['room', owner, roomId, key]);

/** The user's own room with the oracle. */
export const getOwnRoom = (owner: string) => `room of ${owner}`;

/** A value as a store returns it: parsed from JSON. */
function copyJson<T>(value: T): T {
  return value === undefined ? value : JSON.parse(JSON.stringify(value));
}

interface InvocationClaims extends WantedCapability {
  readonly issuer: string;
  readonly audience?: string;
  /** The caveats. */
  readonly nb?: JsonObject;
}

let minted = 0;

/** Replaces a signed invocation in tests; `acceptOnce` accepts it once. */
export function testInvocation(claims: InvocationClaims): string {
  minted += 1;
  return Buffer.from(JSON.stringify({ ...claims, nonce: minted })).toString('base64');
}

const resolveDid = async (serviceUrl: string) =>
  `did:web:${new URL(serviceUrl).host.replaceAll(':', '%3A')}`;

/** Signing and accepting invocations, without keys. */
export function createOracleUcan(): OracleUcan {
  const spent = new Set<string>();
  return {
    mintInvocation: async ({ audience, can, with: resource }) =>
      testInvocation({ issuer: TEST_ORACLE, audience, can, with: resource }),
    resolveServiceDid: resolveDid,
    signWebhook: ({ id, timestamp }) => `v1a,test signature of ${id} at ${timestamp}`,
    acceptOnce: async (token, wanted) => {
      const claims = parseClaims(token);
      const isFor = (['issuer', 'can', 'with'] as const).every(
        (key) => claims[key] === wanted[key],
      );
      if (!isFor) return { error: 'the invocation is not valid for this call' };
      if (spent.has(token)) return { error: 'the invocation was used before' };
      spent.add(token);
      return { ok: true };
    },
  };
}

function parseClaims(token: string): Partial<InvocationClaims> {
  try {
    return JSON.parse(Buffer.from(token, 'base64').toString()) ?? {};
  } catch {
    return {};
  }
}

const isPermitted = (
  { issuer, can, with: granted, nb = {} }: Partial<InvocationClaims>,
  { owner, resource, caveats = {} }: Omit<RunPermission, 'cid'>,
): boolean =>
  issuer === owner &&
  can === RUN_ABILITY &&
  granted === resource &&
  canonicalJson(nb) === canonicalJson(caveats);

type Answer = NonNullable<TestRuntimeOptions['answer']>;

/** Runs turns as users, without a host: `testInvocation` with the ability `oracle/run` makes a delegation. */
export class TestDelegatedTurns implements DelegatedTurns {
  readonly started: DelegatedTurn[] = [];
  readonly #delegations = new Map<string, Partial<InvocationClaims>>();
  readonly #outcomes = new Map<string, TurnOutcome>();
  readonly #listeners = new Set<Parameters<DelegatedTurns['onRevoked']>[0]>();

  constructor(private readonly answer: (prompt: ModelPrompt) => ReturnType<Answer>) {}

  /** Ends a delegation, as its user does. */
  revoke(cid: string): void {
    this.#delegations.delete(cid);
    for (const listener of this.#listeners) void listener(cid);
  }

  async authorize({ token, ...wanted }: Parameters<DelegatedTurns['authorize']>[0]) {
    const claims = parseClaims(token);
    if (!isPermitted(claims, wanted)) throw new OracleError('invalid_delegation');
    this.#delegations.set(token, claims);
    return { cid: token };
  }

  async check({ cid, ...wanted }: RunPermission) {
    const claims = this.#delegations.get(cid);
    return claims && isPermitted(claims, wanted) ? undefined : 'The delegation was revoked';
  }

  async release({ cid }: Pick<RunPermission, 'cid'>) {
    this.#delegations.delete(cid);
  }

  onRevoked(listener: Parameters<DelegatedTurns['onRevoked']>[0]) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async openSession() {
    return { sessionId: randomUUID() };
  }

  async removeEmptySession() {}

  async start(turn: DelegatedTurn) {
    this.started.push(turn);
    const runId = randomUUID();
    const text = await this.answer({ role: 'main', prompt: turn.message });
    this.#outcomes.set(runId, { runId, status: 'finished', text });
    return { runId };
  }

  /** These turns end at once. */
  async abortPaused() {
    return false;
  }

  async abort() {
    return false;
  }

  async outcome({ runId }: { readonly runId: string }) {
    return this.#outcomes.get(runId);
  }
}

/** The delegations that the test states. */
export function createTurnUcan(delegated: readonly WantedCapability[]): TurnUcan {
  const isGranted = (wanted: WantedCapability) =>
    delegated.some(({ can, with: resource }) => can === wanted.can && resource === wanted.with);
  const assertGranted = (wanted: WantedCapability) => {
    if (isGranted(wanted)) return;
    throw new OracleError('forbidden', {
      message: `The user has not delegated ${wanted.can} at ${wanted.with}`,
    });
  };
  return {
    hasSigningKey: () => true,
    hasCapability: async (wanted) => isGranted(wanted),
    requireCapability: async (wanted) => assertGranted(wanted),
    mintInvocation: async ({ audience, can, with: resource }) => {
      assertGranted({ can, with: resource });
      return testInvocation({ issuer: TEST_ORACLE, audience, can, with: resource });
    },
    resolveServiceDid: resolveDid,
  };
}
