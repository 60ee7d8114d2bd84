import { randomUUID } from 'node:crypto';
import type { PluginTurn, PluginTurns } from '@sibyl/plugin-kit';
import { describeIssues, OracleError, type ReplyPart, SendMessage } from '@sibyl/protocol';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { SessionStore } from '../store/sessions/session-store.js';
import { readTimezone } from '../turn/read-timezone.js';
import type { RunReader } from '../turn/runs/run-reader.js';
import type { TurnRequest } from '../turn/turn-request.js';
import type { Turns } from '../turn/turns.js';

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
export function createPluginTurns(parts: PluginTurnsParts): PluginTurns {
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
