import { randomUUID } from 'node:crypto';
import type {
  EarlyPluginContext,
  Llms,
  OracleUcan,
  PluginContext,
  PluginDatabase,
  PluginTurn,
  PluginTurns,
} from '@sibyl/plugin-kit';
import type { SetUpHook } from '@sibyl/plugin-kit/rules';
import { describeIssues, OracleError, type ReplyPart, SendMessage } from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import type { Logger } from 'pino';
import { inTime } from '../agent/timeouts.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { BootFault } from '../config/read-variables.js';
import type { SessionStore } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import type { RunReader } from '../turns/run-reader.js';
import { readTimezone, type TurnRequest } from '../turns/turn-request.js';
import type { Turns } from '../turns/turns.js';
import { pluginFault, reasonOf, type SelectedPlugin, switchOff } from './select-plugins.js';

/** What the host lends to every plugin. */
export interface HostServices {
  readonly logger: Logger;
  readonly oracle: OracleIdentity;
  readonly store: Store;
  readonly fetch: SafeFetch;
  readonly ucan: OracleUcan;
  readonly llm: Llms;
  /** Resolves once the host is ready to take messages. */
  readonly turns: Promise<TurnParts>;
}

interface ContextParts {
  readonly selected: SelectedPlugin;
  readonly database: PluginDatabase;
  readonly availablePlugins: ReadonlySet<string>;
  readonly onClose: PluginContext['onClose'];
}

export function createEarlyContext(
  { selected, database, availablePlugins, onClose }: ContextParts,
  { logger, oracle, store, fetch, ucan, llm, turns }: HostServices,
): EarlyPluginContext {
  const { name: plugin, config } = selected;
  const { did, name, entityDid } = oracle;
  return {
    config,
    oracle: { did, name, ...(entityDid && { entityDid }) },
    availablePlugins,
    logger: logger.child({ plugin }),
    database,
    fetch,
    ucan,
    turns: createPluginTurns({ plugin, oracle, sessions: store.sessions, ready: turns }),
    llm,
    onClose,
  };
}

/** How long a hook may take while the host starts. */
const LIMIT = {
  ms: 30_000,
  fault: 'it took longer than 30 s',
  signal: new AbortController().signal,
};

/** Calls the hooks of one plugin while the host starts, and keeps what goes wrong. */
export class HookCalls {
  readonly faults: BootFault[] = [];

  constructor(private readonly plugin: string) {}

  async call<T>({ hook, run, check, otherwise }: SetUpHook<T>): Promise<T> {
    try {
      const value = await inTime(LIMIT, async () => run());
      if (value === undefined) return otherwise;
      const fault = check(value);
      if (!fault) return value;
      this.fail(`${hook} returned something else than it should: ${fault}`);
    } catch (error) {
      this.fail(`${hook} failed: ${reasonOf(error)}`);
    }
    return otherwise;
  }

  fail(problem: string, remedy = `Mend it, or ${switchOff(this.plugin)}`): void {
    this.faults.push(pluginFault(this.plugin, problem, remedy));
  }
}

/** What carries out turns and reads them. */
export interface TurnParts {
  readonly turns: Turns;
  readonly reader: RunReader;
}

interface PluginTurnsParts {
  readonly plugin: string;
  readonly oracle: OracleIdentity;
  readonly sessions: SessionStore;
  /** Resolves once the host is ready: a message that comes before waits for it. */
  readonly ready: Promise<TurnParts>;
}

const USER = /^[A-Za-z0-9._:%-]{1,200}$/;

/** Turns for users that a plugin has authenticated; each belongs to `did:<plugin>:<user>`. */
function createPluginTurns(parts: PluginTurnsParts): PluginTurns {
  const { plugin, oracle, sessions, ready } = parts;
  return {
    openSession: async (user) => {
      const { id } = await sessions.create({
        owner: ownerOf(plugin, user),
        oracleDid: oracle.did,
        oracleName: oracle.name,
        oracleEntityDid: oracle.entityDid,
      });
      return { sessionId: id };
    },
    start: async (turn) => {
      const owner = ownerOf(plugin, turn.user);
      const { turns, reader } = await ready;
      const run = await reader.find({ owner, runId: await turns.start(requestOf(owner, turn)) });
      return replyParts((signal) => reader.read(run, 0, signal));
    },
    abort: async ({ user, sessionId }) =>
      (await ready).turns.abort({ owner: ownerOf(plugin, user), sessionId }),
  };
}

function ownerOf(plugin: string, user: string): string {
  if (USER.test(user)) return `did:${plugin}:${user}`;
  throw new OracleError('bad_request', { message: 'A user is 1 to 200 of A-Z a-z 0-9 . _ : % -' });
}

function requestOf(owner: string, turn: PluginTurn): TurnRequest {
  const { sessionId, message, client, idempotencyKey } = turn;
  const sent = SendMessage.safeParse({ message, timezone: turn.timezone });
  if (!sent.success) {
    const message = describeIssues(sent.error.issues, 'message');
    throw new OracleError('validation_failed', { message });
  }
  const { timezone, warnings } = readTimezone(turn.timezone);
  return {
    caller: { did: owner, expiration: Number.MAX_SAFE_INTEGER, presentedDelegation: undefined },
    sessionId,
    requestId: randomUUID(),
    message: sent.data,
    user: { timezone },
    warnings,
    client,
    idempotencyKey,
  };
}

type Frames = ReturnType<RunReader['read']>;

/** The frames one by one; whoever stops reading lets go of the run's log. */
async function* replyParts(read: (signal: AbortSignal) => Frames): AsyncGenerator<ReplyPart> {
  const left = new AbortController();
  try {
    for await (const frames of read(left.signal))
      for (const { event, data } of frames) yield { event, data: JSON.parse(data) } as ReplyPart;
  } finally {
    left.abort();
  }
}
