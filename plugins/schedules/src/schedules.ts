import { type DelegatedTurns, OracleError } from '@sibyl/plugin-kit';
import type {
  CreateSchedule,
  Schedule,
  ScheduleRun,
  ScheduleWithSecret,
  UpdateSchedule,
} from '@sibyl/protocol';
import { z } from 'zod';
import type { ScheduleRuns } from './run-store.js';
import {
  assertFits,
  type NewSchedule,
  readTrigger,
  type ScheduleChange,
  type ScheduleKey,
  type ScheduleRow,
  type ScheduleStore,
  toExpiry,
  toScheduleRun,
  toTimestamp,
} from './schedule-store.js';
import type { Scheduler } from './scheduler.js';
import { assertTrigger, findFirstDue } from './timing.js';
import {
  assertSecret,
  composeMessage,
  createSecret,
  hashSecret,
  type ResultChats,
} from './webhooks.js';

/** The plugin's environment variables. */
export const SchedulesConfig = z.object({
  SCHEDULES_PER_USER: z.coerce
    .number()
    .int()
    .min(1)
    .max(1000)
    .prefault(20)
    .describe('Schedules of one user'),
  SCHEDULES_MIN_INTERVAL_SECONDS: z.coerce
    .number()
    .int()
    .min(1)
    .prefault(60)
    .describe('Shortest time between two runs of a schedule, in seconds'),
  SCHEDULES_WEBHOOKS_PER_MINUTE: z.coerce
    .number()
    .int()
    .min(1)
    .prefault(30)
    .describe('Runs that the webhook of one schedule may start in a minute'),
});
export type SchedulesConfig = z.output<typeof SchedulesConfig>;

/** Runs that a user may start by hand in a minute, for one schedule. */
const MANUAL_PER_MINUTE = 10;

interface SchedulesDeps {
  readonly store: ScheduleStore;
  readonly runs: ScheduleRuns;
  readonly turns: DelegatedTurns;
  readonly scheduler: Scheduler;
  readonly toResource: (scheduleId: string) => string;
  readonly chats: ResultChats;
  readonly publicUrl: string;
  readonly config: SchedulesConfig;
}

/** What users do with their schedules. */
export class Schedules {
  constructor(private readonly deps: SchedulesDeps) {}

  async list(owner: string): Promise<Schedule[]> {
    return (await this.deps.store.list(owner)).map((row) => this.toSchedule(row));
  }

  async get(key: ScheduleKey): Promise<Schedule> {
    return this.toSchedule(await this.deps.store.get(key));
  }

  /** Without a delegation in the request, one that is already stored for all schedules of the user counts. */
  async create(
    owner: string,
    { delegation: token, id = crypto.randomUUID(), ...wanted }: CreateSchedule,
  ): Promise<ScheduleWithSecret> {
    const { store, turns, config, scheduler } = this.deps;
    this.assertTrigger(wanted.trigger, await store.now());
    assertOneResult(wanted);
    await this.assertResultTo(wanted.resultTo);
    // Before a session is opened for it; `create` decides.
    assertFits(await store.list(owner), id, config.SCHEDULES_PER_USER);
    const delegation = await this.findDelegation({ owner, id }, token);
    const { sessionId } = await turns.openSession({ owner, title: wanted.name });
    const secret = wanted.trigger.type === 'webhook' ? createSecret() : undefined;
    const secretHash = secret && hashSecret(secret);
    const schedule = { ...wanted, owner, id, sessionId, delegation, secretHash };
    const row = await store.create(schedule, config.SCHEDULES_PER_USER).catch(async (error) => {
      // After another error, it may be stored.
      if (error instanceof OracleError && error.status < 500) await this.discard(schedule, token);
      throw error;
    });
    scheduler.wake();
    return { ...this.toSchedule(row), ...(secret && { webhookSecret: secret }) };
  }

  /** Removes what was stored for a schedule that another request prevented. */
  private async discard(
    { owner, sessionId, delegation }: NewSchedule & { readonly owner: string },
    token: string | undefined,
  ): Promise<void> {
    await this.deps.turns.removeEmptySession({ owner, sessionId });
    if (token !== undefined) await this.release({ owner, delegation_cid: delegation?.cid ?? null });
  }

  async update(key: ScheduleKey, { delegation: token, ...wanted }: UpdateSchedule) {
    const { store, scheduler } = this.deps;
    const before = await store.get(key);
    if (wanted.trigger) this.assertTrigger(wanted.trigger, await store.now());
    if (wanted.trigger && (wanted.trigger.type === 'webhook') !== (before.secret_hash !== null))
      throw new OracleError('validation_failed', {
        message: ['trigger.type: a webhook stays a webhook; create another schedule instead'],
      });
    await this.assertResultTo(wanted.resultTo);
    const resumes = wanted.status === 'active' || token !== undefined;
    const delegation = resumes ? await this.findDelegation(key, token) : undefined;
    if (wanted.status === 'active' && !delegation)
      throw notAuthorized(this.deps.toResource(key.id));
    const row = await store.change(key, (current, now) =>
      toChange(current, { ...wanted, delegation }, now),
    );
    if (before.delegation_cid && before.delegation_cid !== row.delegation_cid)
      await this.release(before);
    scheduler.wake();
    return this.toSchedule(row);
  }

  async remove(key: ScheduleKey): Promise<void> {
    const removed = await this.deps.store.remove(key);
    if (!removed) throw new OracleError('schedule_not_found');
    await this.release(removed);
  }

  /** Starts a run now, in addition to those at its times. */
  async runNow(key: ScheduleKey): Promise<{ dueAt: string }> {
    const row = await this.deps.store.get(key);
    await this.assertPermitted(row);
    const { message } = row;
    return this.claim(key, { cause: 'manual', message, perMinute: MANUAL_PER_MINUTE });
  }

  /** Starts a run for a caller who knows the webhook's secret; an unknown schedule looks like a wrong secret. */
  async trigger(
    key: ScheduleKey,
    { authorization, body }: { readonly authorization: string | undefined; readonly body: string },
  ): Promise<{ dueAt: string }> {
    const rate = {
      cause: 'webhook',
      perMinute: this.deps.config.SCHEDULES_WEBHOOKS_PER_MINUTE,
    } as const;
    // Before anything is read: many callers would take all connections to the database.
    this.deps.runs.assertRate(key, rate);
    const row = await this.deps.store.find(key);
    assertSecret(authorization, row?.secret_hash ?? null);
    if (row?.status !== 'active')
      throw new OracleError('forbidden', { message: 'This schedule is not active' });
    const message = composeMessage(row.message, body);
    return this.claim(key, { ...rate, message });
  }

  /** Replaces the secret of a webhook; the old one is invalid at once. */
  async replaceSecret(key: ScheduleKey): Promise<ScheduleWithSecret> {
    const secret = createSecret();
    const row = await this.deps.store.change(key, (current) => {
      if (current.secret_hash === null)
        throw new OracleError('bad_request', { message: 'This schedule has no webhook' });
      return { secret_hash: hashSecret(secret) };
    });
    return { ...this.toSchedule(row), webhookSecret: secret };
  }

  async listRuns(key: ScheduleKey & { readonly limit: number }): Promise<ScheduleRun[]> {
    await this.deps.store.get(key);
    return (await this.deps.store.listRuns(key)).map(toScheduleRun);
  }

  private async claim(key: ScheduleKey, wanted: Parameters<ScheduleRuns['claimNow']>[1]) {
    const { due_at } = await this.deps.runs.claimNow(key, wanted);
    this.deps.scheduler.wake();
    return { dueAt: toTimestamp(due_at) };
  }

  private assertTrigger(trigger: CreateSchedule['trigger'], now: number): void {
    const minIntervalSeconds = this.deps.config.SCHEDULES_MIN_INTERVAL_SECONDS;
    assertTrigger(trigger, { now, minIntervalSeconds });
  }

  private async assertResultTo(address: string | null | undefined): Promise<void> {
    if (address == null || (await this.deps.chats.find(address)?.isOpen(address))) return;
    throw new OracleError('validation_failed', {
      message: ['resultTo: no such address; get one in Slack or Matrix from this oracle'],
    });
  }

  private findDelegation({ owner, id }: ScheduleKey, token: string | undefined) {
    const { turns, toResource } = this.deps;
    const resource = toResource(id);
    return token === undefined
      ? turns.find({ owner, resource })
      : turns.authorize({ owner, token, resource });
  }

  private async assertPermitted({ owner, id, delegation_cid: cid }: ScheduleRow): Promise<void> {
    const resource = this.deps.toResource(id);
    const reason =
      cid === null ? 'none is stored' : await this.deps.turns.check({ owner, cid, resource });
    if (reason !== undefined) throw notAuthorized(resource);
  }

  /** Deletes the delegation of a schedule, unless another schedule uses it. */
  private async release(row: Pick<ScheduleRow, 'owner' | 'delegation_cid'>): Promise<void> {
    const { owner, delegation_cid: cid } = row;
    const others = await this.deps.store.list(owner);
    if (cid === null || others.some((other) => other.delegation_cid === cid)) return;
    await this.deps.turns.release({ owner, cid });
  }

  private toSchedule(row: ScheduleRow): Schedule {
    const { owner, id, delegation_cid: cid, delegation_expires_at: expiresAt } = row;
    return {
      id,
      name: row.name,
      message: row.message,
      trigger: readTrigger(row),
      catchUp: row.catch_up,
      status: row.status,
      ...(row.reason !== null && { reason: row.reason }),
      sessionId: row.session_id,
      ...(row.next_due_at !== null && { nextDueAt: toTimestamp(row.next_due_at) }),
      failures: row.failures,
      resource: this.deps.toResource(id),
      ...(cid !== null && {
        delegation: { cid, ...(expiresAt !== null && { expiration: expiresAt / 1000 }) },
      }),
      ...(row.result_url !== null && { resultUrl: row.result_url }),
      ...(row.result_to !== null && { resultTo: row.result_to }),
      ...(row.secret_hash !== null && {
        webhookUrl: `${this.deps.publicUrl}/schedules/hooks/${encodeURIComponent(owner)}/${id}`,
      }),
      createdAt: toTimestamp(row.created_at),
      updatedAt: toTimestamp(row.updated_at),
    };
  }
}

const notAuthorized = (resource: string) =>
  new OracleError('delegation_ended', {
    message: `No valid delegation is stored: sign one with the capability oracle/run at ${resource}`,
  });

interface WantedChange extends Omit<UpdateSchedule, 'delegation'> {
  readonly delegation: { readonly cid: string; readonly expiration?: number } | undefined;
}

function toChange(row: ScheduleRow, wanted: WantedChange, now: number): ScheduleChange {
  const { name, message, catchUp, delegation } = wanted;
  const resultUrl = wanted.resultUrl === undefined ? row.result_url : wanted.resultUrl;
  const resultTo = wanted.resultTo === undefined ? row.result_to : wanted.resultTo;
  assertOneResult({ resultUrl, resultTo });
  const trigger = wanted.trigger ?? readTrigger(row);
  const status = chooseStatus(row, wanted);
  const isRetimed = wanted.trigger !== undefined || status !== row.status;
  const next = status === 'active' ? findFirstDue(trigger, now) : null;
  const isOver = status === 'active' && trigger.type === 'once' && next === null;
  return {
    ...(name !== undefined && { name }),
    ...(message !== undefined && { message }),
    ...(catchUp !== undefined && { catch_up: catchUp }),
    result_url: resultUrl,
    result_to: resultTo,
    ...(delegation && {
      delegation_cid: delegation.cid,
      delegation_expires_at: toExpiry(delegation),
    }),
    trigger: JSON.stringify(trigger),
    ...(isRetimed && { next_due_at: next, failures: 0, reason: null }),
    status: isOver ? 'finished' : status,
  };
}

function assertOneResult({ resultUrl, resultTo }: Pick<WantedChange, 'resultUrl' | 'resultTo'>) {
  if (resultUrl == null || resultTo == null) return;
  throw new OracleError('validation_failed', {
    message: ['resultTo: a schedule has either resultUrl or resultTo; set the other one to null'],
  });
}

/** A delegation lets a schedule continue that waited for one; a new time wakes one that had finished. */
function chooseStatus(row: ScheduleRow, wanted: WantedChange): ScheduleRow['status'] {
  if (wanted.status !== undefined) return wanted.status;
  const waits = row.status === 'unauthorized' || row.status === 'stopped';
  if (waits && wanted.delegation) return 'active';
  return row.status === 'finished' && wanted.trigger ? 'active' : row.status;
}
