import { randomUUID } from 'node:crypto';
import { type JsonObject, OracleError, type ReplyPart } from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import type {
  Blobs,
  ClientCalls,
  Llms,
  Logger,
  OracleUcan,
  PluginContext,
  PluginTurn,
  PluginTurns,
  RoomPlace,
  RoomState,
  Secrets,
  SessionState,
  TurnUcan,
  WantedCapability,
} from '../context.js';
import type { ModelRole } from '../model.js';
import type { OraclePlugin } from '../plugin.js';

/** What a plugin asks a model. */
export interface ModelQuestion {
  readonly role: ModelRole;
  readonly system?: string;
  readonly prompt: string;
}

/** A call that a plugin makes to the user's page. */
export type PageCall = Omit<Parameters<ClientCalls['call']>[0], 'signal'>;

/** The world around the plugins of a test; what is not given refuses to be used. */
export interface TestRuntimeOptions {
  /** All of them, those they depend on included. */
  readonly plugins: readonly OraclePlugin[];
  /** Variables, as the environment would hold them. */
  readonly config?: Readonly<Record<string, string>>;
  /** Answers outgoing requests. */
  readonly fetch?: SafeFetch;
  /** Answers what plugins ask models, and the messages they bring from elsewhere. */
  readonly answer?: (question: ModelQuestion) => string | Promise<string>;
  /** Answers calls to the user's page. */
  readonly page?: (call: PageCall) => unknown;
  /** What users have delegated to the oracle. */
  readonly delegated?: readonly WantedCapability[];
}

/** Whom nobody has named otherwise. */
export const TEST_USER = 'did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH';
export const TEST_ORACLE = 'did:key:z6MktwupdmLXVVqTzCw4i46r4uGyosGXRnR3XjN4Zq7oMMsw';

/** A line that a plugin wrote to the log. */
export interface LogLine {
  readonly level: 'info' | 'warn' | 'error';
  readonly fields: object;
  readonly message: string;
}

/** What stands in for the host. */
export class TestWorld {
  readonly keepers = new MemoryKeepers();
  readonly ucan = createOracleUcan();
  readonly oracle = { did: TEST_ORACLE, name: 'Test oracle' };
  /** What the plugins wrote to the log. */
  readonly log: LogLine[] = [];
  /** What the plugins brought from elsewhere. */
  readonly brought: PluginTurn[] = [];
  readonly #closing: (() => void | Promise<void>)[] = [];

  constructor(readonly options: TestRuntimeOptions) {}

  readonly logger: Logger = {
    info: (fields, message) => void this.log.push({ level: 'info', fields, message }),
    warn: (fields, message) => void this.log.push({ level: 'warn', fields, message }),
    error: (fields, message) => void this.log.push({ level: 'error', fields, message }),
  };

  readonly fetch: PluginContext['fetch'] = async (url, init) => {
    if (this.options.fetch) return this.options.fetch(url, init);
    throw new Error(`There is no network in this test: give createTestRuntime a fetch for ${url}`);
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
      this.brought.push(turn);
      return this.#reply(turn);
    },
    abort: async () => false,
  };

  onClose(task: () => void | Promise<void>): void {
    this.#closing.push(task);
  }

  async close(): Promise<void> {
    for (const task of this.#closing.splice(0).reverse()) await task();
  }

  async #answer(question: Parameters<NonNullable<TestRuntimeOptions['answer']>>[0]) {
    if (this.options.answer) return this.options.answer(question);
    throw new Error('There is no model in this test: give createTestRuntime an answer');
  }

  async *#reply({ sessionId, message }: PluginTurn): AsyncGenerator<ReplyPart> {
    const runId = randomUUID();
    yield { event: 'run', data: { runId, sessionId, requestId: randomUUID() } };
    const content = await this.#answer({ role: 'main', prompt: message });
    yield { event: 'message', data: { content, timestamp: new Date().toISOString() } };
    yield { event: 'done', data: { runId, messageId: randomUUID(), status: 'finished' } };
  }
}

/** What the host would keep in its store, in memory. */
export class MemoryKeepers {
  readonly #kept = new Map<string, unknown>();

  readonly rooms: RoomState = {
    read: async (place, key) => copyOf(this.#kept.get(roomKey(place, key)) as JsonObject),
    update: async (place, key, change) => {
      const id = roomKey(place, key);
      const changed = change(copyOf(this.#kept.get(id) as JsonObject | undefined));
      this.#kept.set(id, copyOf(changed));
      return changed;
    },
  };

  sessionState(...place: readonly string[]): SessionState {
    const keyOf = (key: string) => JSON.stringify(['state', ...place, key]);
    return {
      get: async (key) => copyOf(this.#kept.get(keyOf(key))),
      set: async (key, value) => this.#set(keyOf(key), copyOf(value)),
    };
  }

  secrets(...place: readonly string[]): Secrets {
    const keyOf = (name: string) => JSON.stringify(['secret', ...place, name]);
    return {
      get: async (name) => this.#kept.get(keyOf(name)) as string | undefined,
      set: async (name, value) => this.#set(keyOf(name), value),
    };
  }

  blobs(...place: readonly string[]): Blobs {
    const keyOf = (id: string) => JSON.stringify(['blob', ...place, id]);
    return {
      put: async (blob) => {
        const id = randomUUID();
        this.#set(keyOf(id), blob);
        return id;
      },
      get: async (id) => this.#kept.get(keyOf(id)) as Awaited<ReturnType<Blobs['get']>>,
      delete: async (id) => this.#set(keyOf(id), undefined),
    };
  }

  #set(key: string, value: unknown): void {
    if (value === undefined) this.#kept.delete(key);
    else this.#kept.set(key, value);
  }
}

const roomKey = ({ owner, roomId = ownRoomOf(owner) }: RoomPlace, key: string) =>
  JSON.stringify(['room', owner, roomId, key]);

/** The user's own room with the oracle. */
export const ownRoomOf = (owner: string) => `room of ${owner}`;

/** As it comes back from a store: JSON, and nobody else's object. */
function copyOf<T>(value: T): T {
  return value === undefined ? value : JSON.parse(JSON.stringify(value));
}

interface InvocationClaims extends WantedCapability {
  readonly issuer: string;
  readonly audience?: string;
}

let minted = 0;

/** Stands for a signed invocation: says what it is for, and counts once where that is asked. */
export function testInvocation(claims: InvocationClaims): string {
  minted += 1;
  return Buffer.from(JSON.stringify({ ...claims, nonce: minted })).toString('base64');
}

const didOf = async (serviceUrl: string) =>
  `did:web:${new URL(serviceUrl).host.replaceAll(':', '%3A')}`;

/** What the oracle signs for itself, and whose invocations it takes. */
export function createOracleUcan(): OracleUcan {
  const spent = new Set<string>();
  return {
    mintInvocation: async ({ audience, can, with: resource }) =>
      testInvocation({ issuer: TEST_ORACLE, audience, can, with: resource }),
    resolveServiceDid: didOf,
    acceptOnce: async (token, wanted) => {
      const claims = claimsOf(token);
      const isFor = (['issuer', 'can', 'with'] as const).every(
        (key) => claims[key] === wanted[key],
      );
      if (!isFor) return { fault: 'the invocation is not valid for this call' };
      if (spent.has(token)) return { fault: 'the invocation was used before' };
      spent.add(token);
      return { ok: true };
    },
  };
}

function claimsOf(token: string): Partial<InvocationClaims> {
  try {
    return JSON.parse(Buffer.from(token, 'base64').toString()) ?? {};
  } catch {
    return {};
  }
}

/** What users have delegated, as a test says it. */
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
    resolveServiceDid: didOf,
  };
}
