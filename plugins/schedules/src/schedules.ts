import {
  type ApprovedDelegation,
  type DelegatedTurns,
  OracleError,
  type ToolDelegation,
} from '@sibyl/plugin-kit';
import {
  type CreateSchedule,
  RUN_ABILITY,
  type Schedule,
  type ScheduleRun,
  type ScheduleTerms,
  type ScheduleWithSecret,
  toSignedTerms,
  type UpdateSchedule,
} from '@sibyl/protocol';
import { z } from 'zod';
import type { ScheduleRuns } from './run-store.js';
import { isSame, type SchedulePermits, type Signature } from './schedule-permits.js';
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
  toTerms,
  toTimestamp,
} from './schedule-store.js';
import type { Scheduler } from './scheduler.js';
import { assertTrigger, findFirstDue } from './timing.js';
import { assertSecret, createSecret, hashSecret, markData, type ResultChats } from './webhooks.js';

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

/** How long the signature of an approval is valid, unless the only time of the schedule is later. */
const SIGNED_DAYS = 90;
const DAY_MS = 24 * 60 * 60 * 1000;

interface SchedulesDeps {
  readonly store: ScheduleStore;
  readonly runs: ScheduleRuns;
  readonly turns: DelegatedTurns;
  readonly scheduler: Scheduler;
  readonly permits: SchedulePermits;
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

  /** Without a delegation, the schedule waits for one. */
  create(
    owner: string,
    { delegation: token, id = crypto.randomUUID(), ...wanted }: CreateSchedule,
  ): Promise<ScheduleWithSecret> {
    const { permits } = this.deps;
    return this.add({ owner, id, ...wanted }, async () =>
      token === undefined ? undefined : permits.sign({ owner, id }, { token, terms: wanted }),
    );
  }

  /** Creates a schedule that its user has approved, and perhaps signed with that. */
  async createApproved(
    owner: string,
    wanted: Omit<CreateSchedule, 'delegation'>,
    approved: ApprovedDelegation | undefined,
  ): Promise<Schedule> {
    const { permits } = this.deps;
    if (!approved) return this.create(owner, wanted);
    const key = { owner, id: permits.readId(approved.resource) };
    try {
      return await this.add({ ...wanted, ...key }, () =>
        permits.adopt(key, { delegation: approved, terms: wanted }),
      );
    } catch (error) {
      // After another error, the schedule may be stored.
      if (error instanceof OracleError && error.status < 500)
        await this.release({ owner, delegation_cid: approved.cid });
      throw error;
    }
  }

  private async add(
    { owner, id, ...wanted }: Omit<CreateSchedule, 'delegation'> & ScheduleKey,
    sign: () => Promise<Signature | undefined>,
  ): Promise<ScheduleWithSecret> {
    const { store, turns, config, scheduler } = this.deps;
    this.assertTrigger(wanted.trigger, await store.now());
    assertOneResult(wanted);
    await this.assertResultTo(wanted.resultTo);
    // Before a session is opened for it; `create` decides.
    assertFits(await store.list(owner), id, config.SCHEDULES_PER_USER);
    const delegation = await sign();
    const { sessionId } = await turns.openSession({ owner, title: wanted.name });
    const secret = wanted.trigger.type === 'webhook' ? createSecret() : undefined;
    const secretHash = secret && hashSecret(secret);
    const schedule = { ...wanted, owner, id, sessionId, delegation, secretHash };
    const row = await store.create(schedule, config.SCHEDULES_PER_USER).catch(async (error) => {
      // After another error, it may be stored.
      if (error instanceof OracleError && error.status < 500) await this.discard(schedule);
      throw error;
    });
    scheduler.wake();
    return { ...this.toSchedule(row), ...(secret && { webhookSecret: secret }) };
  }

  /** What a user signs with the approval of a schedule that is not created yet. */
  toDelegation(terms: ScheduleTerms): ToolDelegation {
    const resource = this.deps.permits.toResource(crypto.randomUUID());
    const { trigger } = terms;
    const days = trigger.type === 'once' ? (Date.parse(trigger.at) - Date.now()) / DAY_MS + 1 : 0;
    return { resource, terms: toSignedTerms(terms), days: Math.max(SIGNED_DAYS, days) };
  }

  /** Removes what was stored for a schedule that another request prevented. */
  private async discard({
    owner,
    sessionId,
    delegation,
  }: NewSchedule & { readonly owner: string }): Promise<void> {
    await this.deps.turns.removeEmptySession({ owner, sessionId });
    await this.release({ owner, delegation_cid: delegation?.cid ?? null });
  }

  /** A schedule that does something else than what was signed waits for another delegation. */
  async update(
    key: ScheduleKey,
    { delegation: token, ...wanted }: UpdateSchedule,
  ): Promise<Schedule> {
    const { store, scheduler, permits } = this.deps;
    const before = await store.get(key);
    if (wanted.trigger) this.assertTrigger(wanted.trigger, await store.now());
    if (wanted.trigger && (wanted.trigger.type === 'webhook') !== (before.secret_hash !== null))
      throw new OracleError('validation_failed', {
        message: ['trigger.type: a webhook stays a webhook; create another schedule instead'],
      });
    await this.assertResultTo(wanted.resultTo);
    const terms = mergeTerms(before, wanted);
    const signature = token === undefined ? undefined : await permits.sign(key, { token, terms });
    if (wanted.status === 'active' && !signature)
      await this.assertPermitted(isSame(terms, toTerms(before)) ? before : unsigned(before));
    const row = await store.change(key, (current, now) =>
      toChange(current, { ...wanted, signature }, now),
    );
    const stored = [before.delegation_cid, signature?.cid ?? null];
    for (const delegation_cid of stored.filter((cid) => cid !== row.delegation_cid))
      await this.release({ owner: key.owner, delegation_cid });
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
    return this.claim(key, { cause: 'manual', data: null, perMinute: MANUAL_PER_MINUTE });
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
    return this.claim(key, { ...rate, data: markData(body) });
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

  private async assertPermitted(row: ScheduleRow): Promise<void> {
    const { permits } = this.deps;
    const reason = await permits.check(row);
    if (reason === undefined) return;
    throw new OracleError('delegation_ended', {
      message: `${reason}: sign a delegation of ${RUN_ABILITY} at ${permits.toResource(row.id)} with the hashes of what the schedule does`,
    });
  }

  /** Deletes the delegation of a schedule, unless another schedule uses it. */
  private async release(row: Pick<ScheduleRow, 'owner' | 'delegation_cid'>): Promise<void> {
    const { owner, delegation_cid: cid } = row;
    const others = await this.deps.store.list(owner);
    if (cid === null || others.some((other) => other.delegation_cid === cid)) return;
    await this.deps.permits.release(row);
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
      resource: this.deps.permits.toResource(id),
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

interface WantedChange extends Omit<UpdateSchedule, 'delegation'> {
  readonly signature: Signature | undefined;
}

/** What a schedule does after a change. */
function mergeTerms(row: ScheduleRow, wanted: Omit<UpdateSchedule, 'delegation'>): ScheduleTerms {
  const { message, trigger, resultUrl, resultTo } = wanted;
  const before = toTerms(row);
  return {
    message: message ?? before.message,
    trigger: trigger ?? before.trigger,
    resultUrl: resultUrl === undefined ? before.resultUrl : resultUrl,
    resultTo: resultTo === undefined ? before.resultTo : resultTo,
  };
}

const unsigned = (row: ScheduleRow): ScheduleRow => ({
  ...row,
  delegation_cid: null,
  reason: UNSIGNED,
});

const UNSIGNED = 'What the schedule does was changed without a signature';

function toChange(row: ScheduleRow, wanted: WantedChange, now: number): ScheduleChange {
  const { name, catchUp } = wanted;
  const terms = mergeTerms(row, wanted);
  const { message, trigger, resultUrl = null, resultTo = null } = terms;
  assertOneResult({ resultUrl, resultTo });
  // Another request may have changed the schedule since this one was signed.
  const signature =
    wanted.signature && isSame(wanted.signature.terms, terms) ? wanted.signature : undefined;
  const signed = sign(row, { signature, terms });
  const isSigned = signed.delegation_cid !== null;
  const status = chooseStatus(row, { ...wanted, signature, isSigned });
  const isRetimed = wanted.trigger !== undefined || status !== row.status;
  const next = status === 'active' ? findFirstDue(trigger, now) : null;
  const isOver = status === 'active' && trigger.type === 'once' && next === null;
  return {
    ...(name !== undefined && { name }),
    message,
    ...(catchUp !== undefined && { catch_up: catchUp }),
    result_url: resultUrl,
    result_to: resultTo,
    trigger: JSON.stringify(trigger),
    ...(isRetimed && { next_due_at: next, failures: 0, reason: null }),
    status: isOver ? 'finished' : status,
    ...signed,
  };
}

/** The delegation of a schedule that does this now; none if it does something else than what was signed. */
function sign(
  row: ScheduleRow,
  { signature, terms }: Pick<WantedChange, 'signature'> & { readonly terms: ScheduleTerms },
): Partial<ScheduleRow> & Pick<ScheduleRow, 'delegation_cid'> {
  if (signature)
    return {
      delegation_cid: signature.cid,
      delegation_expires_at: toExpiry(signature),
      reason: null,
    };
  if (isSame(terms, toTerms(row))) return { delegation_cid: row.delegation_cid };
  return { delegation_cid: null, delegation_expires_at: null, reason: UNSIGNED };
}

function assertOneResult({ resultUrl, resultTo }: Pick<WantedChange, 'resultUrl' | 'resultTo'>) {
  if (resultUrl == null || resultTo == null) return;
  throw new OracleError('validation_failed', {
    message: ['resultTo: a schedule has either resultUrl or resultTo; set the other one to null'],
  });
}

/** A delegation lets a schedule continue that waited for one; a new time wakes one that had finished. */
function chooseStatus(
  row: ScheduleRow,
  { status, trigger, signature, isSigned }: WantedChange & { readonly isSigned: boolean },
): ScheduleRow['status'] {
  const wakes = row.status === 'finished' && trigger !== undefined;
  if (!isSigned) return row.status === 'finished' && !wakes ? 'finished' : 'unauthorized';
  if (status !== undefined) return status;
  const waits = row.status === 'unauthorized' || row.status === 'stopped';
  return wakes || (waits && signature) ? 'active' : row.status;
}
