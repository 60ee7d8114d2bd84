import {
  type ListUsers,
  type OperatorFailures,
  type OperatorHost,
  type OperatorOverview,
  type OperatorSpan,
  type OperatorSpeed,
  type OperatorTrace,
  type OperatorTurn,
  type OperatorUser,
  type OperatorUsers,
  OracleError,
} from '@sibyl/protocol';
import { TimeoutError, withTimeout } from '@sibyl/server-kit';
import type { SocketUser } from '../bus/socket-presence.js';
import type { TurnSpan } from '../observability/spans.js';
import { listToolCalls } from '../store/message-store.js';
import type { ListedUser } from '../store/operators/operator-store.js';
import type { SpeedCount, TurnFilter, UserSum } from '../store/operators/turn-reports.js';
import type { RunRow } from '../store/schema/runs.js';
import type { Store } from '../store/store.js';
import { toUtcDay } from '../store/usage-store.js';
import type { HostReports } from './host-reports.js';
import { findProblems, toFailure } from './problems.js';

const MINUTE_MS = 60 * 1000;
const HOUR_MS = 60 * MINUTE_MS;
/** Points of a chart. */
const SPEED_STEPS = 48;
const DAY_MS = 24 * HOUR_MS;

export interface OperatorViewsDeps {
  readonly store: Store;
  readonly hosts: HostReports;
  /** Of all hosts. */
  readonly listSocketUsers: () => Promise<readonly SocketUser[]>;
}

/** What operators see: figures, states and causes. Texts and secrets are never part of it. */
export class OperatorViews {
  constructor(private readonly deps: OperatorViewsDeps) {}

  /** Answers also while the store does not: then it shows what this host knows. */
  async overview(): Promise<OperatorOverview> {
    const { store, hosts } = this.deps;
    const now = Date.now();
    const { turnReports } = store;
    const [all, turns, speeds, users, failures] = await Promise.all([
      hosts.list(),
      orNull(turnReports.countOpen()),
      orNull(turnReports.countSpeeds(now - HOUR_MS, HOUR_MS)),
      orNull(turnReports.sumByUser(Date.parse(toUtcDay(now)))),
      orNull(turnReports.countCauses(now - DAY_MS)),
    ]);
    const running = all.filter(({ state }) => state === 'running');
    return {
      timestamp: new Date(now).toISOString(),
      hosts: countStates(all),
      problems: all.flatMap(findProblems),
      turns,
      sockets: sum(running, ({ sockets }) => sockets),
      streams: sum(running, ({ streams }) => streams),
      timeToFirstToken: speeds && toSpeed(speeds),
      today: users && sumUsers(users),
      failures: failures?.map(toFailure) ?? null,
      limited: sumLimited(all),
    };
  }

  /** The time to the first text, in about as many steps as a chart can show. */
  async speed(hours: number): Promise<OperatorSpeed> {
    const stepMs = Math.ceil((hours * HOUR_MS) / SPEED_STEPS / MINUTE_MS) * MINUTE_MS;
    const since = Math.floor((Date.now() - hours * HOUR_MS) / stepMs) * stepMs;
    const counts = await orUnavailable(this.deps.store.turnReports.countSpeeds(since, stepMs));
    const points = [...Map.groupBy(counts, ({ at }) => at)]
      .sort(([a], [b]) => a - b)
      .flatMap(([at, inStep]) => {
        const speed = toSpeed(inStep);
        return speed ? [{ at: new Date(at).toISOString(), ...speed }] : [];
      });
    return { stepMs, points };
  }

  async turns(filter: TurnFilter): Promise<readonly OperatorTurn[]> {
    return (await orUnavailable(this.deps.store.turnReports.list(filter))).map(toTurn);
  }

  /** The spans of one turn, with arguments if the user shares them. */
  async trace(runId: string): Promise<OperatorTrace> {
    const { store } = this.deps;
    const row = await orUnavailable(store.turnReports.find(runId));
    if (!row) throw new OracleError('run_not_found');
    const { spans = [], omitted = 0 } = parseTrace(row);
    const argumentsShared = await store.sharedArguments.has(row.owner);
    const argumentsByCall = argumentsShared ? await this.readArguments(row) : new Map();
    const turn = toTurn(row);
    const waitedMs = Math.max(0, (row.started_at ?? row.created_at) - row.created_at);
    const shown = spans.map((span) => toSpan(span, waitedMs, argumentsByCall));
    return {
      turn,
      spans: [...frame(row, waitedMs), ...shown].sort((a, b) => a.start - b.start || a.id - b.id),
      omitted,
      argumentsShared,
    };
  }

  /** Those who used the oracle since then, or one user. */
  async users(since: number, query: Pick<ListUsers, 'user' | 'limit'>): Promise<OperatorUsers> {
    const { store, hosts } = this.deps;
    const [sums, blocked, all, connected] = await Promise.all([
      orUnavailable(store.turnReports.sumByUser(since)),
      orUnavailable(store.blockedUsers.list()),
      hosts.list(),
      orUnavailable(this.deps.listSocketUsers()),
    ]);
    const limited = sumByDid(all.flatMap((host) => host.limited));
    const sockets = sumByDid(connected);
    const known = new Map(sums.map((each) => [each.user, each]));
    const blocks = new Map(blocked.map((each) => [each.did, each]));
    const found = [known, limited, blocks, sockets].flatMap((list) => [...list.keys()]);
    const dids = query.user ? [query.user] : [...new Set(found)];
    // Those whom operators have to deal with are never left out for others.
    const urgent = dids.filter((did) => blocks.has(did) || limited.has(did));
    const shown = new Set([...new Set([...urgent, ...dids])].slice(0, query.limit));
    const listed = dids.filter((did) => shown.has(did));
    const users = listed.map((user) => ({
      user,
      ...toUsage(known.get(user)),
      sockets: sockets.get(user) ?? 0,
      limited: limited.get(user) ?? 0,
      ...describeBlock(blocks.get(user)),
    }));
    return { users, total: dids.length };
  }

  async failures(since: number): Promise<OperatorFailures> {
    const { store, hosts } = this.deps;
    const [causes, all] = await Promise.all([
      orNull(store.turnReports.countCauses(since)),
      hosts.list(),
    ]);
    return {
      turns: causes?.map(toFailure) ?? null,
      models: all.flatMap(({ modelFailures }) => modelFailures),
      requests: all.flatMap(({ errors }) => errors),
    };
  }

  private async readArguments({ owner, message_id }: RunRow): Promise<Map<string, object>> {
    const { messages } = this.deps.store;
    const message = message_id && (await messages.find({ owner, messageId: message_id }));
    if (!message) return new Map();
    return new Map(listToolCalls(message).map(({ id, args }) => [id, args]));
  }
}

const READ_LIMIT = { ms: 2_000, message: 'the store does not answer' };

/** Null if the store fails or does not answer in time: operators look here to find out. */
const orNull = <T>(work: Promise<T>): Promise<T | null> =>
  withTimeout(READ_LIMIT, () => work).catch(() => null);

/** Says that the store is the reason, without making the operator wait. */
export const orUnavailable = <T>(work: Promise<T>): Promise<T> =>
  withTimeout(READ_LIMIT, () => work).catch((cause) => {
    if (!(cause instanceof TimeoutError)) throw cause;
    throw new OracleError('store_unavailable', { retryAfterSeconds: 5, cause });
  });

const countStates = (hosts: readonly OperatorHost[]) => {
  const counts = { running: 0, lost: 0, unknown: 0 };
  for (const { state } of hosts) counts[state] += 1;
  return counts;
};

const sum = <T>(items: readonly T[], read: (item: T) => number): number =>
  items.reduce((total, item) => total + read(item), 0);

const describeBlock = (block: ListedUser | undefined): Pick<OperatorUser, 'blocked'> => {
  if (!block) return {};
  const reason = block.note;
  return { blocked: { at: new Date(block.createdAt).toISOString(), ...(reason && { reason }) } };
};

function sumByDid(
  items: readonly { readonly did: string; readonly count: number }[],
): Map<string, number> {
  const sums = new Map<string, number>();
  for (const { did, count } of items) sums.set(did, (sums.get(did) ?? 0) + count);
  return sums;
}

/** Of all hosts together, most often first. */
function sumLimited(hosts: readonly OperatorHost[]): OperatorOverview['limited'] {
  const all = hosts.flatMap(({ limited }) => limited);
  return [...sumByDid(all)]
    .map(([did, count]) => {
      const times = all.filter((each) => each.did === did).map(({ lastAt }) => lastAt);
      return { did, count, lastAt: times.sort().at(-1) ?? '' };
    })
    .sort((a, b) => b.count - a.count);
}

function toSpeed(counts: readonly SpeedCount[]): OperatorOverview['timeToFirstToken'] {
  const turns = sum(counts, ({ count }) => count);
  if (turns === 0) return null;
  const sorted = [...counts].sort((a, b) => a.ms - b.ms);
  const at = (part: number) => {
    let left = Math.min(turns - 1, Math.floor(part * turns));
    for (const { ms, count } of sorted) {
      if (left < count) return ms;
      left -= count;
    }
    return 0;
  };
  return { medianMs: at(0.5), p95Ms: at(0.95), turns };
}

function sumUsers(users: readonly UserSum[]): NonNullable<OperatorOverview['today']> {
  const costs = users.flatMap(({ cost }) => cost ?? []);
  return {
    users: users.length,
    turns: sum(users, ({ turns }) => turns),
    failed: sum(users, ({ failed }) => failed),
    inputTokens: sum(users, ({ inputTokens }) => inputTokens),
    outputTokens: sum(users, ({ outputTokens }) => outputTokens),
    ...(costs.length > 0 && { cost: sum(costs, (cost) => cost) }),
  };
}

function toUsage(known: UserSum | undefined) {
  const { turns = 0, failed = 0, inputTokens = 0, outputTokens = 0, cost, lastAt } = known ?? {};
  return {
    turns,
    failed,
    inputTokens,
    outputTokens,
    ...(typeof cost === 'number' && { cost }),
    ...(lastAt !== undefined && { lastAt: new Date(lastAt).toISOString() }),
  };
}

function toTurn(row: RunRow): OperatorTurn {
  const { host_id, traceparent, started_at, first_text_ms, cost, cause, error_message } = row;
  const models = row.usage === null ? [] : (JSON.parse(row.usage) as { model: string }[]);
  return {
    runId: row.id,
    user: row.owner,
    sessionId: row.session_id,
    requestId: row.request_id,
    status: row.status,
    attempt: row.attempt,
    createdAt: new Date(row.created_at).toISOString(),
    updatedAt: new Date(row.updated_at).toISOString(),
    models: models.map(({ model }) => model),
    inputTokens: row.input_tokens,
    outputTokens: row.output_tokens,
    ...(traceparent !== null && { traceId: traceparent.slice(3, 35) }),
    ...(host_id !== null && { hostId: host_id }),
    ...(started_at !== null && { startedAt: new Date(started_at).toISOString() }),
    ...(first_text_ms !== null && { firstTextMs: first_text_ms }),
    ...(cost !== null && { cost }),
    ...(cause !== null && { cause }),
    ...(error_message !== null && { message: error_message }),
  };
}

function parseTrace({ trace }: RunRow): { spans?: readonly TurnSpan[]; omitted?: number } {
  return trace === null ? {} : JSON.parse(trace);
}

/** The time in the queue, and the turn itself. */
function frame(row: RunRow, waitedMs: number): OperatorSpan[] {
  const ms = Math.max(0, row.updated_at - (row.started_at ?? row.updated_at));
  const turn = { id: 0, parent: 0, kind: 'turn', name: 'Turn', start: waitedMs, ms } as const;
  const error = row.cause === null ? {} : { error: row.cause };
  const waiting = { id: -1, parent: 0, kind: 'waiting', name: 'Waiting', start: 0 } as const;
  return [...(waitedMs > 0 ? [{ ...waiting, ms: waitedMs }] : []), { ...turn, ...error }];
}

function toSpan(
  { id, parent, kind, name, start, ms, error, callId, inputTokens, outputTokens }: TurnSpan,
  waitedMs: number,
  argumentsByCall: ReadonlyMap<string, object>,
): OperatorSpan {
  const args = callId === undefined ? undefined : argumentsByCall.get(callId);
  return {
    id,
    // The turn itself is the first span of the trace.
    parent: parent <= 1 ? 0 : parent,
    kind: kind as OperatorSpan['kind'],
    name,
    start: start + waitedMs,
    ms,
    ...(error && { error }),
    ...(inputTokens !== undefined && { inputTokens }),
    ...(outputTokens !== undefined && { outputTokens }),
    ...(args && { arguments: args as Record<string, unknown> }),
  };
}
