import {
  type HostMessages,
  type Logger,
  OracleError,
  type PluginDatabase,
} from '@sibyl/plugin-kit';
import type { CallerSessions } from '@sibyl/plugin-kit/surface';
import { bigint, defineTable, type TableTypes, text } from '@sibyl/plugin-kit/tables';
import { z } from 'zod';
import { EventStream } from './calls.js';

const subscriptions = defineTable(
  'mcp_server_subscriptions',
  { owner: text(), session: text(), uri: text(), expires_at: bigint() },
  { key: ['owner', 'session', 'uri'] },
);

export const tables = [subscriptions] as const;

type Tables = TableTypes<typeof tables>;
type SubscriptionRow = Tables['mcp_server_subscriptions'];

interface SubscriptionsDeps {
  readonly database: PluginDatabase<Tables>;
  readonly hosts: HostMessages;
  readonly logger: Logger;
}

/** A session of the protocol. */
interface SessionKey {
  readonly owner: string;
  readonly session: string;
}

interface Watcher {
  /** Receives the address of each resource that changed; undefined if any session may have. */
  readonly onUpdate: (uri: string | undefined) => void;
  /** Called when the subscriptions of a session changed. */
  readonly onSubscribed?: (session: string) => void;
}

interface WatchOptions extends Watcher {
  readonly owner: string;
  readonly sessions: CallerSessions;
  readonly signal: AbortSignal;
}

interface OpenOptions extends SessionKey, Pick<WatchOptions, 'sessions' | 'signal'> {
  /** Whether the client knows events without data. */
  readonly primes: boolean;
  /** Whether the client was connected before. */
  readonly hasMissed: boolean;
}

const KEEP_MS = 7 * 24 * 3600 * 1000;
const MAX_PER_USER = 200;
const MAX_URI_LENGTH = 2_000;
const MAX_WATCHERS_PER_USER = 20;
const MAX_WATCHERS = 2_000;
const TOO_LONG = `The address of a resource has at most ${MAX_URI_LENGTH} characters`;
const TOO_MANY = `You have ${MAX_PER_USER} subscriptions: unsubscribe from some`;
const UPDATED = 'notifications/resources/updated';

/** Begins the addresses of conversations. */
export const SESSION_URI = 'oracle://sessions/';
const toSessionUri = (sessionId: string) => `${SESSION_URI}${sessionId}`;

/** Messages between hosts. */
const Change = z.discriminatedUnion('type', [
  z.object({ type: z.literal('updated'), owner: z.string(), uri: z.string() }),
  z.object({ type: z.literal('subscribed'), owner: z.string(), session: z.string() }),
]);

/** The resources whose changes clients want to know, and the streams that report them. */
export class Subscriptions {
  /** By owner. */
  private readonly watchers = new Map<string, Set<Watcher>>();
  private count = 0;

  constructor(private readonly deps: SubscriptionsDeps) {
    deps.hosts.on((message) => {
      const { data } = Change.safeParse(message);
      if (data?.type === 'updated') this.report(data.owner, data.uri);
      if (data?.type === 'subscribed') this.reload(data);
    });
  }

  async subscribe({ owner, session }: SessionKey, uri: string): Promise<void> {
    if (uri.length > MAX_URI_LENGTH) throw new OracleError('bad_request', { message: TOO_LONG });
    const now = this.deps.database.now();
    const replaced = await this.deps.database.writeFor(owner, async (tables) => {
      await tables
        .deleteFrom('mcp_server_subscriptions')
        .where('owner', '=', owner)
        .where('expires_at', '<', now)
        .execute();
      const known = await tables
        .selectFrom('mcp_server_subscriptions')
        .selectAll()
        .where('owner', '=', owner)
        .orderBy('expires_at')
        .execute();
      const dropped = chooseDropped(known, { session, uri });
      if (dropped) await deleteRow(tables, dropped);
      const expires_at = now + KEEP_MS;
      await tables
        .insertInto('mcp_server_subscriptions')
        .values({ owner, session, uri, expires_at })
        .onConflict((c) => c.columns(['owner', 'session', 'uri']).doUpdateSet({ expires_at }))
        .execute();
      return dropped;
    });
    this.announce({ owner, session });
    if (replaced) this.announce(replaced);
  }

  async unsubscribe({ owner, session }: SessionKey, uri: string): Promise<void> {
    await this.deps.database.write((tables) => deleteRow(tables, { owner, session, uri }));
    this.announce({ owner, session });
  }

  /** Reports the change of a resource to the clients of a user, on every host. */
  publish(owner: string, uri: string): void {
    this.report(owner, uri);
    this.deps.hosts.send('others', { type: 'updated', owner, uri });
  }

  /**
   * Calls back with each resource that changes, and with undefined if any session may have; `ended` resolves when the signal is
   * aborted, the caller has lost access or the host stops. Throws if there are too many.
   */
  watch({ owner, sessions, signal, ...watcher }: WatchOptions): { readonly ended: Promise<void> } {
    const watchers = this.watchers.get(owner) ?? new Set();
    if (watchers.size >= MAX_WATCHERS_PER_USER)
      throw new OracleError('too_many_streams', { retryAfterSeconds: 5 });
    if (this.count >= MAX_WATCHERS) throw new OracleError('host_busy', { retryAfterSeconds: 5 });
    this.watchers.set(owner, watchers.add(watcher));
    this.count += 1;
    const leave = () => {
      this.count -= 1;
      watchers.delete(watcher);
      if (watchers.size === 0) this.watchers.delete(owner);
    };
    return { ended: this.follow(sessions.changes(signal), watcher).finally(leave) };
  }

  /** The stream of a session: an update for each change of a resource that it has subscribed to. */
  async open({ session, primes, hasMissed, ...reader }: OpenOptions): Promise<EventStream> {
    const key = { owner: reader.owner, session };
    const stream = new EventStream({ id: 'updates', primes });
    let uris: readonly string[] = [];
    const onUpdate = (uri: string | undefined) => {
      for (const each of uris)
        if (uri === undefined ? each.startsWith(SESSION_URI) : each === uri)
          stream.write({ jsonrpc: '2.0', method: UPDATED, params: { uri: each } });
    };
    const reload = async () => {
      uris = await this.list(key);
    };
    const onSubscribed = (changed: string) => {
      if (changed !== session) return;
      reload().catch((err) => {
        this.deps.logger.warn({ err }, 'the subscriptions of an MCP client cannot be read');
        // The client connects again.
        stream.end();
      });
    };
    const { ended } = this.watch({ ...reader, onUpdate, onSubscribed });
    void ended.then(() => stream.end());
    await this.extend(key);
    await reload();
    // The client cannot know what changed while it was away.
    if (hasMissed) for (const uri of uris) onUpdate(uri);
    return stream;
  }

  private async follow(
    changes: ReturnType<CallerSessions['changes']>,
    { onUpdate }: Watcher,
  ): Promise<void> {
    try {
      for await (const changed of changes)
        for (const id of changed) onUpdate(id === undefined ? id : toSessionUri(id));
    } catch (err) {
      this.deps.logger.info({ err }, 'the updates of an MCP client ended');
    }
  }

  private async list({ owner, session }: SessionKey): Promise<readonly string[]> {
    const rows = await this.deps.database.tables
      .selectFrom('mcp_server_subscriptions')
      .select('uri')
      .where('owner', '=', owner)
      .where('session', '=', session)
      .execute();
    return rows.map(({ uri }) => uri);
  }

  /** Subscriptions that are used do not expire. */
  private async extend({ owner, session }: SessionKey): Promise<void> {
    await this.deps.database.write((tables) =>
      tables
        .updateTable('mcp_server_subscriptions')
        .set({ expires_at: this.deps.database.now() + KEEP_MS })
        .where('owner', '=', owner)
        .where('session', '=', session)
        .execute(),
    );
  }

  private announce({ owner, session }: SessionKey): void {
    this.reload({ owner, session });
    this.deps.hosts.send('others', { type: 'subscribed', owner, session });
  }

  private reload({ owner, session }: SessionKey): void {
    for (const watcher of this.watchers.get(owner) ?? []) watcher.onSubscribed?.(session);
  }

  private report(owner: string, uri: string): void {
    for (const { onUpdate } of this.watchers.get(owner) ?? []) onUpdate(uri);
  }
}

/**
 * The subscription that makes room for a new one, if there are too many: the oldest of another session, which may have
 * ended without a word. Throws if all are of this session.
 */
function chooseDropped(
  known: readonly SubscriptionRow[],
  { session, uri }: Pick<SubscriptionRow, 'session' | 'uri'>,
): SubscriptionRow | undefined {
  const isKnown = known.some((each) => each.session === session && each.uri === uri);
  if (isKnown || known.length < MAX_PER_USER) return undefined;
  const dropped = known.find((each) => each.session !== session);
  if (!dropped) throw new OracleError('bad_request', { message: TOO_MANY });
  return dropped;
}

const deleteRow = (
  tables: PluginDatabase<Tables>['tables'],
  { owner, session, uri }: Omit<SubscriptionRow, 'expires_at'>,
) =>
  tables
    .deleteFrom('mcp_server_subscriptions')
    .where('owner', '=', owner)
    .where('session', '=', session)
    .where('uri', '=', uri)
    .execute();
