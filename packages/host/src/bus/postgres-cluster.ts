import { randomUUID } from 'node:crypto';
import { ConfigError } from '@sibyl/server-kit/environment';
import type pg from 'pg';
import type { Logger } from 'pino';
import { PostgresHostBus, SHARED_CHANNEL, toChannel } from './postgres-host-bus.js';
import { lockHost, PostgresLiveness } from './postgres-liveness.js';
import { closeClient, createClient, PostgresSession } from './postgres-session.js';

/** How long a notification may take at the start. */
const PROBE_TIMEOUT_MS = 10_000;

interface PostgresClusterOptions {
  readonly hostId: string;
  readonly databaseUrl: string;
  readonly databaseDirectUrl: string | undefined;
  readonly logger: Pick<Logger, 'error' | 'warn' | 'info'>;
}

/** Opens three connections beside those of the store: one listens, one notifies, one waits for locks. */
export async function joinPostgresCluster(options: PostgresClusterOptions) {
  const { hostId, databaseUrl, databaseDirectUrl, logger } = options;
  const url = databaseDirectUrl ?? databaseUrl;
  await assertKeepsSessions(url, databaseDirectUrl ? 'DATABASE_DIRECT_URL' : 'DATABASE_URL');
  const sessions: PostgresSession[] = [];
  const open = async (role: string, setup: readonly string[]) => {
    const session = await PostgresSession.open({ url, name: `sibyl ${hostId} ${role}`, setup });
    sessions.push(session);
    return session;
  };
  const closeSessions = () => Promise.all(sessions.map((session) => session.close()));
  try {
    const channels = [SHARED_CHANNEL, toChannel(hostId)].map((channel) => `listen ${channel}`);
    const listener = await open('listener', [...channels, lockHost(hostId)]);
    const notifier = await open('notifier', [lockHost(hostId)]);
    const watcher = await open('watcher', []);
    const bus = new PostgresHostBus({ hostId, listener, notifier, logger });
    const holders = [listener, notifier];
    const liveness = new PostgresLiveness({ bus, holders, watcher, logger });
    const close = async () => {
      await bus.close();
      // The watcher is waiting for a lock; without its connection it stops at once.
      await Promise.all([liveness.close(), closeSessions()]);
    };
    return { hostId, bus, liveness, close };
  } catch (error) {
    await closeSessions();
    throw error;
  }
}

type SuitableUrl = 'DATABASE_URL' | 'DATABASE_DIRECT_URL';

/**
 * Throws a ConfigError unless a notification arrives at an idle connection. Poolers such as PgBouncer in transaction mode
 * change the session behind a connection after each transaction: notifications get lost, and locks outlive their host.
 */
async function assertKeepsSessions(url: string, variable: SuitableUrl): Promise<void> {
  const [listener, notifier] = [createClient(url, 'sibyl'), createClient(url, 'sibyl')];
  try {
    const hasArrived = await probeNotification(listener, notifier);
    if (!hasArrived) throw createPoolerError(variable);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    throw createUnreachableError(variable, error);
  } finally {
    await Promise.all([closeClient(listener), closeClient(notifier)]);
  }
}

async function probeNotification(listener: pg.Client, notifier: pg.Client): Promise<boolean> {
  await listener.connect();
  await notifier.connect();
  const channel = `sibyl_probe_${randomUUID().replaceAll('-', '')}`;
  const arrival = Promise.withResolvers<boolean>();
  // It may be rejected while a query is awaited, which then fails too.
  arrival.promise.catch(() => {});
  listener.on('notification', () => arrival.resolve(true));
  // A pooler may give both clients the same session in turn.
  notifier.on('notification', () => arrival.resolve(false));
  for (const client of [listener, notifier])
    client.once('end', () => arrival.reject(new Error('Connection terminated unexpectedly')));
  await listener.query(`listen ${channel}`);
  await notifier.query(`notify ${channel}`);
  // A server that is frozen for a while is not a pooler.
  const timer = setTimeout(() => arrival.resolve(false), PROBE_TIMEOUT_MS);
  try {
    return await arrival.promise;
  } finally {
    clearTimeout(timer);
  }
}

function createPoolerError(variable: SuitableUrl): ConfigError {
  return new ConfigError('host', [
    {
      subject: `${variable} (host)`,
      problem:
        'connects through a pooler that does not keep sessions, such as PgBouncer in transaction mode: hosts could not notify each other',
      remedy:
        'Set DATABASE_DIRECT_URL to the address of PostgreSQL itself, or of a pooler in session mode; DATABASE_URL may stay the same',
    },
  ]);
}

function createUnreachableError(variable: SuitableUrl, cause: unknown): ConfigError {
  // If a name has several addresses, the error contains one error for each and has no message.
  const first = cause instanceof AggregateError ? cause.errors[0] : cause;
  const reason = first instanceof Error ? first.message : String(first);
  const issue = {
    subject: `${variable} (host)`,
    problem: `cannot connect: ${reason}`,
    remedy: 'Check the address, and that the server is running and accepts more connections',
  };
  return new ConfigError('host', [issue], { cause });
}
