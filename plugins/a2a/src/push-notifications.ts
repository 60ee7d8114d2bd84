import { createHash, randomUUID } from 'node:crypto';
import type { TaskPushNotificationConfig } from '@a2a-js/sdk';
import {
  type DelegatedTurns,
  type HostMessages,
  type Logger,
  type OracleUcan,
  type PluginDatabase,
  type Repetition,
  repeat,
  type SafeFetch,
  type Secrets,
  type SetupContext,
  type TurnOutcome,
} from '@sibyl/plugin-kit';
import type { PluginTurns } from '@sibyl/plugin-kit/chat';
import { OwnerRounds, type OwnersPage, postWebhook } from '@sibyl/plugin-kit/deliveries';
import type { CallerAccess, Surface } from '@sibyl/plugin-kit/surface';
import {
  bigint,
  defineTable,
  integer,
  type Row,
  type TableTypes,
  text,
} from '@sibyl/plugin-kit/tables';
import { HttpUrl, OracleError } from '@sibyl/protocol';
import type { Kysely } from 'kysely';
import { z } from 'zod';
import type { TaskFacts } from './tasks.js';

interface PushDeps {
  readonly store: PushConfigStore;
  readonly secrets: (owner: string) => Secrets;
  readonly turns: Pick<DelegatedTurns, 'outcome'>;
  readonly surface: Pick<Surface, 'keepsAccess'>;
  readonly questions: Pick<PluginTurns, 'pending'>;
  readonly fetch: SafeFetch;
  readonly ucan: Pick<OracleUcan, 'signWebhook'>;
  readonly pageUrl: string;
  readonly findHolder: SetupContext['findHolder'];
  readonly logger: Logger;
}

/** How often hosts look for tasks that have changed. */
const INTERVAL_MS = 1_000;
const MAX_IN_PROGRESS = 40;
const MAX_PER_OWNER = 4;
const ATTEMPTS = 6;
/** Longer than an attempt may take. */
const FIRST_PAUSE_MS = 30_000;
/** Longer answers are in the task. */
const MAX_TEXT = 256 * 1024;

const HeaderText = z
  .string()
  .regex(/^[\x20-\x7e]{0,2000}$/, 'must be at most 2000 ASCII characters');

const Config = z.object({
  id: z.string().max(200),
  url: HttpUrl,
  token: HeaderText,
  authentication: z
    .object({ scheme: z.string().regex(/^[A-Za-z0-9-]{1,50}$/), credentials: HeaderText })
    .optional(),
});

/** What the receiver wants to see; encrypted at rest. */
const Credentials = Config.pick({ token: true, authentication: true });
type Credentials = z.infer<typeof Credentials>;

const Access = z.object({
  did: z.string(),
  cids: z.array(z.string()),
  expiration: z.number().optional(),
});

/** Posts tasks to the addresses that their clients chose, whenever a task ends or waits for an answer. */
export class PushNotifications {
  private readonly rounds: OwnerRounds<ConfigRow>;
  private readonly worker: Repetition;

  constructor(private readonly deps: PushDeps) {
    const { store, findHolder, logger } = deps;
    this.rounds = new OwnerRounds({
      max: MAX_IN_PROGRESS,
      maxPerOwner: MAX_PER_OWNER,
      findHolder,
      listOwners: (page) => store.listDueOwners(page),
      take: (owner, limit) => store.takeDue(owner, limit, FIRST_PAUSE_MS),
      run: (row) => this.check(row),
      describe: ({ owner: did, task_id: taskId }) => ({ did, taskId }),
      logger,
    });
    this.worker = repeat(() => this.rounds.fill(), { everyMs: INTERVAL_MS, logger });
  }

  async close(): Promise<void> {
    await this.worker.stop();
    await this.rounds.close();
  }

  /** Stores where to post as long as the client has access; a config with the same id is replaced. */
  async add(
    access: CallerAccess,
    task: TaskFacts,
    config: TaskPushNotificationConfig,
  ): Promise<TaskPushNotificationConfig> {
    const { url, token, authentication, id } = parseConfig(config);
    const { id: taskId, sessionId, contextId, messageId } = task;
    const { did: owner } = access;
    const key = { owner, task_id: taskId, id: id || randomUUID(), url };
    const credentials: Credentials = { token, ...(authentication && { authentication }) };
    await this.writeSecret(key, credentials);
    const about = { session_id: sessionId, context_id: contextId, message_id: messageId };
    try {
      const row = { ...key, ...about, access: JSON.stringify(access) };
      const dropped = await this.deps.store.add(row);
      const others = dropped.filter((each) => toSecretName(each) !== toSecretName(key));
      for (const each of others) await this.writeSecret(each, undefined);
    } catch (error) {
      // A config that replaces another one is never too many. After any other error, it may have been stored.
      if (error instanceof OracleError && error.code === 'bad_request')
        await this.writeSecret(key, undefined);
      throw error;
    }
    this.worker.wake();
    return toConfig(key, credentials);
  }

  async list(task: TaskRef): Promise<readonly TaskPushNotificationConfig[]> {
    const rows = await this.deps.store.list(task);
    return Promise.all(
      rows.map(async (row) => {
        const credentials = (await this.readSecret(row)) ?? { token: '' };
        return toConfig(row, credentials);
      }),
    );
  }

  async remove(key: ConfigKey): Promise<void> {
    for (const row of await this.deps.store.remove(key)) await this.writeSecret(row, undefined);
  }

  private async drop(row: ConfigRow): Promise<void> {
    if (await this.deps.store.drop(row)) await this.writeSecret(row, undefined);
  }

  /** Looks at a task soon: its client has just changed it. */
  async wake(task: TaskRef): Promise<void> {
    await this.deps.store.wake(task);
    this.worker.wake();
  }

  /** Posts the task if its state is news. */
  private async check(row: ConfigRow): Promise<void> {
    const { store, turns, surface, logger } = this.deps;
    const { data: access } = Access.safeParse(JSON.parse(row.access));
    // What its client may not read any more is not sent to it either.
    if (!access || !(await surface.keepsAccess(access))) return this.drop(row);
    const outcome = await turns.outcome({ owner: row.owner, runId: row.task_id });
    // Its session was deleted, or its message withdrawn.
    if (!outcome) return this.drop(row);
    const { status, runId } = outcome;
    const state = `${runId} ${status}`;
    if (['queued', 'running'].includes(status) || state === row.delivered)
      return store.postpone(row);
    const failure = await this.post(row, outcome);
    const attempts = row.attempts + 1;
    if (failure !== undefined && attempts < ATTEMPTS)
      return store.retry(row, attempts, FIRST_PAUSE_MS * 4 ** row.attempts);
    if (failure !== undefined)
      logger.info(
        { did: row.owner, taskId: row.task_id, failure },
        'push notification not delivered',
      );
    return store.recordDelivery(row, state, status !== 'paused');
  }

  private async post(row: ConfigRow, outcome: TurnOutcome): Promise<string | undefined> {
    const { questions, pageUrl, fetch, ucan } = this.deps;
    const { owner, task_id: taskId, session_id: sessionId, context_id: contextId } = row;
    // Loads the SDK.
    const { buildTask, toPushBody } = await import('./tasks.js');
    const { status, text, error } = outcome;
    const task = buildTask({
      id: taskId,
      sessionId,
      contextId,
      messageId: row.message_id,
      status,
      updatedAt: Date.now(),
      text: text.slice(0, MAX_TEXT),
      error,
      questions: status === 'paused' ? await questions.pending({ owner, sessionId }) : [],
      pageUrl,
    });
    const id = `msg_${hash([owner, taskId, row.id, outcome.runId, status]).slice(0, 32)}`;
    const credentials = await this.readSecret(row);
    if (!credentials) return 'its credentials cannot be read: the key of the oracle has changed';
    const headers = toHeaders(credentials);
    return postWebhook({ fetch, ucan }, { url: row.url, id, body: toPushBody(task), headers });
  }

  private writeSecret(config: Address, credentials: Credentials | undefined): Promise<void> {
    const value = credentials && JSON.stringify(credentials);
    return this.deps.secrets(config.owner).set(toSecretName(config), value);
  }

  /** Undefined if they cannot be read, because the oracle's key has changed. */
  private async readSecret(row: ConfigRow): Promise<Credentials | undefined> {
    const secret = await this.deps
      .secrets(row.owner)
      .get(toSecretName(row))
      .catch((error) => {
        if (error instanceof OracleError && error.code === 'key_changed') return null;
        throw error;
      });
    if (secret === null) return undefined;
    return Credentials.parse(JSON.parse(secret ?? '{"token":""}'));
  }
}

/** Throws what is wrong with a config. */
export function parseConfig(config: TaskPushNotificationConfig): z.infer<typeof Config> {
  const { data, error } = Config.safeParse(config);
  if (data) return data;
  const issues = error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  throw new OracleError('bad_request', { message: issues.join('; ') });
}

const hash = (values: readonly string[]) =>
  createHash('sha256').update(JSON.stringify(values)).digest('base64url');

/** Credentials belong to one address: those of a config that replaces another one must not reach the earlier address. */
const toSecretName = ({ task_id, id, url }: Address) => `push-${hash([task_id, id, url])}`;

function toHeaders({ token, authentication }: Credentials): Record<string, string> {
  return {
    'content-type': 'application/a2a+json',
    ...(authentication && {
      authorization: `${authentication.scheme} ${authentication.credentials}`,
    }),
    ...(token && { 'x-a2a-notification-token': token }),
  };
}

const toConfig = (
  { task_id: taskId, id, url }: Address,
  { token, authentication }: Credentials,
): TaskPushNotificationConfig => ({ tenant: '', id, taskId, url, token, authentication });

interface TaskRef {
  readonly owner: string;
  readonly taskId: string;
}

interface ConfigKey extends TaskRef {
  readonly id: string;
}

/** Where to post tasks. */
const pushConfigs = defineTable(
  'a2a_push_configs',
  {
    owner: text(),
    task_id: text(),
    id: text(),
    session_id: text(),
    context_id: text(),
    message_id: text(),
    url: text(),
    /** What the access of the client rests on, as JSON. */
    access: text(),
    /** The run and the status that the receiver knows. */
    delivered: text().optional(),
    /** Of the current notification. */
    attempts: integer(),
    /** When to look at the task again; null once there is nothing to expect. */
    due_at: bigint().optional(),
    /** The host that looks at it. */
    holder: text().optional(),
    created_at: bigint(),
  },
  {
    key: ['owner', 'task_id', 'id'],
    indexes: {
      a2a_push_configs_due: { on: ['due_at', 'owner'] },
      a2a_push_configs_held: { on: ['holder'] },
    },
  },
);

type ConfigRow = Row<typeof pushConfigs>;
type Progress = Pick<ConfigRow, 'delivered' | 'attempts' | 'due_at' | 'holder' | 'created_at'>;

type Address = Pick<ConfigRow, 'owner' | 'task_id' | 'id' | 'url'>;

export const tables = [pushConfigs] as const;

type Tables = TableTypes<typeof tables>;

const MAX_PER_TASK = 10;
const MAX_PER_USER = 1_000;
const KEPT_MS = 30 * 86_400_000;
const MINUTE_MS = 60_000;

/** Where the tasks of each user are posted. */
export class PushConfigStore {
  constructor(
    private readonly database: PluginDatabase<Tables>,
    private readonly hosts: Pick<HostMessages, 'hostId' | 'findDead'>,
  ) {}

  /**
   * Adds or replaces a config, within the limits of the task and of the user; returns the one that it replaced, and those
   * that were dropped because of their age, or since nothing is posted to them any more.
   */
  add(config: Omit<ConfigRow, keyof Progress>): Promise<readonly Address[]> {
    const { owner, task_id, id } = config;
    return this.database.writeFor(owner, async (tables) => {
      const now = this.database.now();
      const dropped = await tables
        .deleteFrom('a2a_push_configs')
        .where('owner', '=', owner)
        .where((e) => e.or([e('created_at', '<', now - KEPT_MS), e.and({ task_id, id })]))
        .returning(['owner', 'task_id', 'id', 'url'])
        .execute();
      const others = await tables
        .selectFrom('a2a_push_configs')
        .selectAll()
        .where('owner', '=', owner)
        .orderBy('created_at')
        .execute();
      const ofTask = others.filter((other) => other.task_id === task_id);
      const done = others.find(({ due_at }) => due_at === null);
      const isFull = others.length >= MAX_PER_USER;
      if (ofTask.length >= MAX_PER_TASK || (isFull && !done))
        throw new OracleError('bad_request', { message: TOO_MANY });
      if (isFull && done) {
        await deleteRow(tables, done);
        dropped.push(done);
      }
      const state = { delivered: null, attempts: 0, due_at: now, holder: null, created_at: now };
      await tables
        .insertInto('a2a_push_configs')
        .values({ ...config, ...state })
        .execute();
      return dropped;
    });
  }

  list({ owner, taskId }: TaskRef): Promise<readonly ConfigRow[]> {
    return this.database.tables
      .selectFrom('a2a_push_configs')
      .selectAll()
      .where((e) => e.and({ owner, task_id: taskId }))
      .orderBy('id')
      .execute();
  }

  /** Returns what was removed. */
  remove({ owner, taskId, id }: ConfigKey): Promise<readonly Address[]> {
    return this.database.write((tables) =>
      tables
        .deleteFrom('a2a_push_configs')
        .where((e) => e.and({ owner, task_id: taskId, id }))
        .returning(['owner', 'task_id', 'id', 'url'])
        .execute(),
    );
  }

  /** Removes a config unless it was replaced; returns whether it did. */
  async drop(row: ConfigRow): Promise<boolean> {
    const { numDeletedRows } = await this.database.write((tables) => deleteRow(tables, row));
    return numDeletedRows > 0n;
  }

  /** Makes the configs of a task due that still expect something. */
  async wake({ owner, taskId }: TaskRef): Promise<void> {
    const configs = await this.list({ owner, taskId });
    for (const row of configs) if (row.due_at !== null) await this.update(row, {}, 0);
  }

  /** Users with configs to look at now. */
  async listDueOwners({ after, limit }: OwnersPage): Promise<readonly string[]> {
    await this.releaseDead();
    const now = this.database.now();
    const rows = await this.database.tables
      // Otherwise, SQLite would read the configs of all users that are not due.
      .with(
        (name) => name('due').materialized(),
        (tables) =>
          tables.selectFrom('a2a_push_configs').select('owner').where('due_at', '<=', now),
      )
      .selectFrom('due')
      .select('owner')
      .distinct()
      .where('owner', '>', after)
      .orderBy('owner')
      .limit(limit)
      .execute();
    return rows.map(({ owner }) => owner);
  }

  /** Takes configs of a user to look at now; `pauseMs` later any host may do so. */
  takeDue(owner: string, limit: number, pauseMs: number): Promise<readonly ConfigRow[]> {
    const { hostId: holder } = this.hosts;
    return this.database.write(async (locked) => {
      const now = this.database.now();
      const due = locked
        .selectFrom('a2a_push_configs')
        .selectAll()
        .where('owner', '=', owner)
        .where('due_at', '<=', now)
        .orderBy('due_at')
        .limit(limit);
      const { engine } = this.database;
      const rows = await (engine === 'postgres' ? due.forUpdate().skipLocked() : due).execute();
      for (const row of rows)
        await updateRow(locked, row, { due_at: now + pauseMs, holder }).execute();
      return rows;
    });
  }

  /** What a dead host had in hand is due at once. */
  private async releaseDead(): Promise<void> {
    const { tables } = this.database;
    const held = await tables
      .selectFrom('a2a_push_configs')
      .select('holder')
      .distinct()
      .where('due_at', 'is not', null)
      .where('holder', '<>', this.hosts.hostId)
      .execute();
    const dead = await this.hosts.findDead(held.flatMap(({ holder }) => holder ?? []));
    if (dead.length === 0) return;
    await this.database.write((locked) => {
      const rows = locked.updateTable('a2a_push_configs').where('due_at', 'is not', null);
      return rows.set({ due_at: 0, holder: null }).where('holder', 'in', dead).execute();
    });
  }

  /** Nothing new: the longer ago the task began, the later it is looked at again. */
  async postpone(row: ConfigRow): Promise<void> {
    const age = this.database.now() - row.created_at;
    const pause = age < MINUTE_MS ? 1_000 : age < 60 * MINUTE_MS ? 5_000 : MINUTE_MS;
    await this.update(row, { attempts: 0 }, pause);
  }

  /** The receiver knows the state of the task, or does not want to. */
  async recordDelivery(row: ConfigRow, delivered: string, isFinal: boolean): Promise<void> {
    if (isFinal) await this.update(row, { delivered, attempts: 0 }, undefined);
    else await this.update(row, { delivered, attempts: 0 }, 1_000);
  }

  retry(row: ConfigRow, attempts: number, pauseMs: number): Promise<void> {
    return this.update(row, { attempts }, pauseMs);
  }

  /** `dueInMs` undefined: never again. */
  private async update(
    row: ConfigRow,
    values: Partial<ConfigRow>,
    dueInMs: number | undefined,
  ): Promise<void> {
    await this.database.write(async (tables) => {
      const due_at = dueInMs === undefined ? null : this.database.now() + dueInMs;
      await updateRow(tables, row, { ...values, due_at, holder: null })
        // Another host may have tried as well, because this one was frozen for a while: what it recorded stays.
        .where('attempts', '=', row.attempts)
        .where('delivered', row.delivered === null ? 'is' : '=', row.delivered)
        .execute();
    });
  }
}

const TOO_MANY = `A task has at most ${MAX_PER_TASK} push notification configs, and a user ${MAX_PER_USER} of tasks that have not ended; delete some`;

/** The client may have replaced the config since it was read: the new one is left as it is. */
const toSame = ({ owner, task_id, id, url, created_at }: ConfigRow) => ({
  owner,
  task_id,
  id,
  url,
  created_at,
});

const updateRow = (tables: Kysely<Tables>, row: ConfigRow, values: Partial<ConfigRow>) =>
  tables
    .updateTable('a2a_push_configs')
    .set(values)
    .where((e) => e.and(toSame(row)));

const deleteRow = (tables: Kysely<Tables>, row: ConfigRow) =>
  tables
    .deleteFrom('a2a_push_configs')
    .where((e) => e.and(toSame(row)))
    .executeTakeFirstOrThrow();
