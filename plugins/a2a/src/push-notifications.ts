import { createHash, randomUUID } from 'node:crypto';
import type { TaskPushNotificationConfig } from '@a2a-js/sdk';
import {
  type DelegatedTurns,
  type Logger,
  type OracleUcan,
  type PluginTurns,
  postWebhook,
  type Repetition,
  repeat,
  type SafeFetch,
  type Secrets,
  type TurnOutcome,
} from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';
import {
  type ConfigKey,
  type ConfigRow,
  type PushConfigStore,
  type TaskRef,
  toConfigKey,
} from './push-configs.js';
import type { TaskFacts } from './tasks.js';

interface PushDeps {
  readonly store: PushConfigStore;
  readonly secrets: (owner: string) => Secrets;
  readonly turns: Pick<DelegatedTurns, 'outcome'>;
  readonly questions: Pick<PluginTurns, 'pending'>;
  readonly fetch: SafeFetch;
  readonly ucan: Pick<OracleUcan, 'signWebhook'>;
  readonly publicUrl: string;
  readonly logger: Logger;
}

/** How often hosts look for tasks that have changed. */
const INTERVAL_MS = 1_000;
/** A batch more may be in progress. */
const MAX_IN_PROGRESS = 40;
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
  url: z.url({ protocol: /^https?$/ }).max(2000),
  token: HeaderText,
  authentication: z
    .object({ scheme: z.string().regex(/^[A-Za-z0-9-]{1,50}$/), credentials: HeaderText })
    .optional(),
});

/** What the receiver wants to see; encrypted at rest. */
const Credentials = Config.pick({ token: true, authentication: true });
type Credentials = z.infer<typeof Credentials>;

/** Posts tasks to the addresses that their clients chose, whenever a task ends or waits for an answer. */
export class PushNotifications {
  private readonly inProgress = new Set<Promise<void>>();
  private readonly worker: Repetition;

  constructor(private readonly deps: PushDeps) {
    const { logger } = deps;
    this.worker = repeat(() => this.deliverSome(), { everyMs: INTERVAL_MS, logger });
  }

  async close(): Promise<void> {
    await this.worker.stop();
    await Promise.all(this.inProgress);
  }

  /** Stores where to post; a config with the same id is replaced. */
  async add(
    owner: string,
    task: TaskFacts,
    config: TaskPushNotificationConfig,
  ): Promise<TaskPushNotificationConfig> {
    const { url, token, authentication, id } = parseConfig(config);
    const { id: taskId, sessionId, contextId, messageId } = task;
    const key = { owner, taskId, id: id || randomUUID() };
    const secret: Credentials = { token, ...(authentication && { authentication }) };
    await this.deps.secrets(owner).set(toSecretName(key), JSON.stringify(secret));
    const about = { session_id: sessionId, context_id: contextId, message_id: messageId };
    await this.deps.store.add({ owner, task_id: taskId, id: key.id, ...about, url });
    this.worker.wake();
    return toConfig(key, url, secret);
  }

  async list(task: TaskRef): Promise<readonly TaskPushNotificationConfig[]> {
    const rows = await this.deps.store.list(task);
    return Promise.all(
      rows.map(async (row) => toConfig(toConfigKey(row), row.url, await this.readSecret(row))),
    );
  }

  async remove(key: ConfigKey): Promise<void> {
    await this.deps.store.remove(key);
    await this.deps.secrets(key.owner).set(toSecretName(key), undefined);
  }

  /** Looks at a task soon: its client has just changed it. */
  async wake(task: TaskRef): Promise<void> {
    await this.deps.store.wake(task);
    this.worker.wake();
  }

  private async deliverSome(): Promise<void> {
    if (this.inProgress.size >= MAX_IN_PROGRESS) return;
    for (const row of await this.deps.store.takeDue(FIRST_PAUSE_MS)) {
      const work = this.check(row).catch((err) => {
        const about = { err, did: row.owner, taskId: row.task_id };
        this.deps.logger.warn(about, 'push notification not sent; trying again');
      });
      this.inProgress.add(work);
      void work.finally(() => this.inProgress.delete(work));
    }
  }

  /** Posts the task if its state is news. */
  private async check(row: ConfigRow): Promise<void> {
    const { store, turns, logger } = this.deps;
    const key = toConfigKey(row);
    const outcome = await turns.outcome({ owner: row.owner, runId: row.task_id });
    // Its session was deleted, or its message withdrawn.
    if (!outcome) return this.remove(key);
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
    const { turns: _, questions, publicUrl, ...deps } = this.deps;
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
      publicUrl,
    });
    const id = `msg_${hash([owner, taskId, row.id, outcome.runId, status]).slice(0, 32)}`;
    const headers = toHeaders(await this.readSecret(row));
    return postWebhook(deps, { url: row.url, id, body: toPushBody(task), headers });
  }

  private async readSecret(row: ConfigRow): Promise<Credentials> {
    const secret = await this.deps.secrets(row.owner).get(toSecretName(toConfigKey(row)));
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

const toSecretName = ({ taskId, id }: ConfigKey) => `push-${hash([taskId, id])}`;

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
  { taskId, id }: ConfigKey,
  url: string,
  { token, authentication }: Credentials,
): TaskPushNotificationConfig => ({ tenant: '', id, taskId, url, token, authentication });
