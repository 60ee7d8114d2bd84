import { OracleError } from '@sibyl/plugin-kit';
import type { ScheduleTrigger } from '@sibyl/protocol';
import { Cron } from 'croner';

const MINUTE_MS = 60_000;
const YEAR_MS = 365 * 24 * 60 * MINUTE_MS;

/** A due time that is noticed within this time is on time; a later one was missed. */
export const ON_TIME_MS = MINUTE_MS;

/** Later times are mistakes. */
const MAX_AHEAD_YEARS = 10;

/** Due times that are compared with the shortest interval: those of a minute, if they are a second apart. */
const COMPARED = 60;

interface TriggerLimits {
  /** Milliseconds. */
  readonly now: number;
  readonly minIntervalSeconds: number;
}

/** Throws what is wrong with a trigger: an invalid pattern, times that never come, past, too frequent or too far. */
export function assertTrigger(trigger: ScheduleTrigger, limits: TriggerLimits): void {
  if (trigger.type === 'once') assertTime(Date.parse(trigger.at), limits);
  if (trigger.type === 'cron') assertCron(trigger, limits);
}

function assertTime(at: number, { now }: TriggerLimits): void {
  if (at < now - ON_TIME_MS) throw refuse('at: must be in the future');
  if (at > now + MAX_AHEAD_YEARS * YEAR_MS)
    throw refuse(`at: must be within ${MAX_AHEAD_YEARS} years`);
}

type CronTrigger = Extract<ScheduleTrigger, { type: 'cron' }>;

function assertCron(trigger: CronTrigger, { now, minIntervalSeconds }: TriggerLimits): void {
  const count = minIntervalSeconds > 1 ? COMPARED : 1;
  const [first, ...others] = parseAhead(trigger, now).nextRuns(count, new Date(now));
  if (!first || first.getTime() > now + MAX_AHEAD_YEARS * YEAR_MS)
    throw refuse(`cron: no such time comes within ${MAX_AHEAD_YEARS} years`);
  const times = [first, ...others].map((time) => time.getTime());
  const isTooOften = times.some(
    (time, i) => i > 0 && time - (times[i - 1] ?? 0) < minIntervalSeconds * 1000,
  );
  if (isTooOften)
    throw refuse(`cron: runs more often than every ${minIntervalSeconds} seconds, the limit here`);
}

/** With the years that matter: the library would search for rare times through centuries. */
function parseAhead(trigger: CronTrigger, now: number): Cron {
  const pattern = parse(trigger);
  const fields = trigger.cron.trim().split(/\s+/);
  // A name, such as @daily: it has times in every year.
  if (fields.length < 5) return pattern;
  const year = new Date(now).getUTCFullYear();
  // In a time zone, it may be another year.
  const years = `${year - 1}-${year + MAX_AHEAD_YEARS + 1}`;
  const cron = [...(fields.length === 5 ? ['0'] : []), ...fields, years].join(' ');
  return new Cron(cron, { timezone: trigger.timezone, mode: '7-part', paused: true });
}

/** Parses a pattern of five or six fields, or a name such as @daily. */
function parse({ cron, timezone }: CronTrigger): Cron {
  try {
    // A date is not a pattern, although the library accepts one.
    if (/^\d{4}-/.test(cron.trim())) throw new TypeError('a date is not a pattern');
    return new Cron(cron, { timezone, mode: '5-or-6-parts', paused: true });
  } catch (error) {
    const detail = String(error instanceof Error ? error.message : error).replaceAll(
      /^CronPattern: |\.$/g,
      '',
    );
    throw refuse(`cron: ${detail}. Use five fields: minute hour day month weekday`);
  }
}

const refuse = (problem: string) =>
  new OracleError('validation_failed', { message: [`trigger.${problem}`] });

/** The first due time after a time, in milliseconds; null if there is none. */
export function findNextDue(trigger: ScheduleTrigger, after: number): number | null {
  switch (trigger.type) {
    case 'once': {
      const at = Date.parse(trigger.at);
      return at > after ? at : null;
    }
    case 'cron':
      return parse(trigger).nextRun(new Date(after))?.getTime() ?? null;
    case 'webhook':
      return null;
    default:
      return trigger satisfies never;
  }
}

/** The first due time of a schedule that begins at `now`; a time that has just passed still counts. */
export const findFirstDue = (trigger: ScheduleTrigger, now: number): number | null =>
  findNextDue(trigger, trigger.type === 'once' ? now - ON_TIME_MS : now);

interface DueSchedule {
  readonly trigger: ScheduleTrigger;
  readonly catchUp: 'skip' | 'once';
  /** The first due time that has not been handled. */
  readonly nextDueAt: number;
}

/** What to do about the due times that have passed. */
export interface DueDecision {
  /** The latest of them; it includes all earlier ones. */
  readonly dueAt: number;
  readonly cause: 'time' | 'catch-up';
  readonly isSkipped: boolean;
  /** The next due time; null if there is none. */
  readonly next: number | null;
}

/** Decides for a schedule that is due at `now`. At most one run makes up for all times that have passed. */
export function decideDue({ trigger, catchUp, nextDueAt }: DueSchedule, now: number): DueDecision {
  const dueAt = Math.max(nextDueAt, findLastDue(trigger, now) ?? nextDueAt);
  const next = findNextDue(trigger, now);
  const isLate = now - dueAt > ON_TIME_MS;
  return {
    dueAt,
    cause: isLate ? 'catch-up' : 'time',
    isSkipped: isLate && catchUp === 'skip',
    next,
  };
}

/** The latest due time that is not after `now`. */
function findLastDue(trigger: ScheduleTrigger, now: number): number | undefined {
  if (trigger.type !== 'cron') return undefined;
  // The times before the next full second include the current one.
  const end = new Date(Math.floor(now / 1000) * 1000 + 1000);
  return parse(trigger).previousRuns(1, end)[0]?.getTime();
}

const FIRST_PAUSE_MS = 30_000;
const MAX_PAUSE_MS = 6 * 60 * MINUTE_MS;

/** Pauses longer after each failure in a row. */
export const computeBackoff = (failures: number): number =>
  Math.min(FIRST_PAUSE_MS * 2 ** (failures - 1), MAX_PAUSE_MS);
