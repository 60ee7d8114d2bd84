import { EventEmitter } from 'node:events';
import { settlesWithin } from '@sibyl/server-kit';
import pg from 'pg';

const CONNECT_TIMEOUT_MS = 5_000;
const QUERY_TIMEOUT_MS = 3_000;
const HEARTBEAT_MS = 2_000;
const CLOSE_TIMEOUT_MS = 1_000;
const RETRY_MIN_MS = 50;
const RETRY_MAX_MS = 2_000;

/**
 * PostgreSQL ends the session of a lost machine after seven seconds. By then that machine has noticed the loss itself: its
 * heartbeat takes five at most. A process that hangs while its machine still answers sends no heartbeats; PostgreSQL
 * ends its session after ten seconds, from version 14 on.
 */
const SETTINGS = `
  set tcp_keepalives_idle = 3;
  set tcp_keepalives_interval = 1;
  set tcp_keepalives_count = 4;
  set tcp_user_timeout = 7000;
  set statement_timeout = 0;
  set lock_timeout = 0;
  select set_config(name, '10000', false) from pg_settings where name = 'idle_session_timeout';
`;

interface SessionEvents {
  /** The session is usable, for the first time or again. */
  connected: [];
  /** The session has ended with its locks and its channels. */
  lost: [error: Error];
  /** The payload of a notification. */
  notification: [payload: string];
}

interface SessionOptions {
  readonly url: string;
  /** Of the connection in `pg_stat_activity`. */
  readonly name: string;
  /** Statements that each new connection runs before it is used. */
  readonly setup: readonly string[];
}

/** One connection to PostgreSQL that keeps its session, notices when it is lost and connects again by itself. */
export class PostgresSession extends EventEmitter<SessionEvents> {
  /** When a statement last succeeded, on the monotonic clock. */
  lastAnswerAt = Number.NEGATIVE_INFINITY;
  private readonly options: SessionOptions;
  private readonly heartbeat: NodeJS.Timeout;
  private client: pg.Client | undefined;
  /** Settles once the last statement of the connection has ended. */
  private lastQuery: Promise<unknown> = Promise.resolve();
  private retry: NodeJS.Timeout | undefined;
  private failures = 0;
  private isClosed = false;

  private constructor(options: SessionOptions) {
    super();
    this.options = options;
    this.heartbeat = setInterval(() => {
      // A failure ends the connection, which is reported as `lost`.
      if (this.client) this.query('select 1').catch(() => {});
    }, HEARTBEAT_MS);
  }

  /** Rejects if the first connection fails. */
  static async open(options: SessionOptions): Promise<PostgresSession> {
    const session = new PostgresSession(options);
    try {
      await session.connect();
      return session;
    } catch (error) {
      await session.close();
      throw error;
    }
  }

  get isConnected(): boolean {
    return this.client !== undefined;
  }

  /** Runs a statement after earlier ones; one that takes more than three seconds ends the connection. */
  async query<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[] = [],
  ): Promise<readonly Row[]> {
    const { client, lastQuery } = this;
    if (!client) throw new Error('Connection terminated: the session is reconnecting');
    const query = lastQuery.then(() => runQuery<Row>(client, text, values));
    this.lastQuery = query.then(this.noteAnswer, () => {});
    return query;
  }

  async close(): Promise<void> {
    this.isClosed = true;
    clearInterval(this.heartbeat);
    clearTimeout(this.retry);
    const { client } = this;
    this.client = undefined;
    if (client) await closeClient(client);
  }

  private async connect(): Promise<void> {
    const { url, name, setup } = this.options;
    const client = createClient(url, name);
    let cause: Error | undefined;
    client.on('error', (error) => {
      cause = error;
    });
    client.on('notification', ({ payload = '' }) => this.emit('notification', payload));
    try {
      await client.connect();
      for (const statement of [SETTINGS, ...setup]) await runQuery(client, statement);
    } catch (error) {
      await closeClient(client);
      throw error;
    }
    if (this.isClosed) return closeClient(client);
    client.on('end', () => this.lose(client, cause ?? new Error('Connection terminated')));
    this.client = client;
    this.noteAnswer();
    this.lastQuery = Promise.resolve();
    this.failures = 0;
    this.emit('connected');
  }

  private readonly noteAnswer = () => {
    this.lastAnswerAt = performance.now();
  };

  private lose(client: pg.Client, error: Error): void {
    if (this.client !== client) return;
    this.client = undefined;
    this.emit('lost', error);
    this.reconnectLater();
  }

  private reconnectLater(): void {
    if (this.isClosed) return;
    const delay = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** this.failures);
    this.failures += 1;
    // Spread, so that the hosts do not all connect at the moment when PostgreSQL is back.
    const spread = delay * (0.5 + Math.random() / 2);
    this.retry = setTimeout(() => this.connect().catch(() => this.reconnectLater()), spread);
  }
}

/** A connection that ends with an error does not end the process. */
export function createClient(url: string, name: string): pg.Client {
  const client = new pg.Client({
    connectionString: url,
    application_name: name,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    keepAlive: true,
    keepAliveInitialDelayMillis: 3_000,
  });
  return client.on('error', () => {});
}

async function runQuery<Row extends pg.QueryResultRow>(
  client: pg.Client,
  text: string,
  values: readonly unknown[] = [],
): Promise<readonly Row[]> {
  // Without parameters, several statements may be sent at once.
  const asked = values.length > 0 ? client.query<Row>(text, [...values]) : client.query<Row>(text);
  return (await withReplyTimeout(QUERY_TIMEOUT_MS, client, asked)).rows;
}

/** Ends the connection if no reply arrives in time, so that the query fails: it may have been lost on the way. */
export async function withReplyTimeout<T>(
  timeoutMs: number,
  client: pg.ClientBase,
  asked: Promise<T>,
): Promise<T> {
  let isSettled = false;
  const timer = setTimeout(() => {
    // If this process was busy all the time, the answer may be there: it is read before this runs.
    setImmediate(() => {
      if (!isSettled) disconnect(client, new Error('Connection terminated: no answer in time'));
    });
  }, timeoutMs);
  try {
    return await asked;
  } finally {
    isSettled = true;
    clearTimeout(timer);
  }
}

function disconnect(client: pg.ClientBase, error?: Error): void {
  // The clients of a pool are of this class too, although their type does not say so.
  if (client instanceof pg.Client) client.connection.stream.destroy(error);
}

/** A server that does not answer does not delay this for long. */
export async function closeClient(client: pg.Client): Promise<void> {
  if (!(await settlesWithin(CLOSE_TIMEOUT_MS, client.end()))) disconnect(client);
}
