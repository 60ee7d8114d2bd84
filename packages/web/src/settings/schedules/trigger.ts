import type { ScheduleTrigger } from '@sibyl/client';
import { formatDateTime } from '../../i18n/format.js';
import { getLanguage, t } from '../../i18n/i18n.js';

/** When a schedule runs, as the form asks for it. */
export interface TriggerChoice {
  readonly kind: 'daily' | 'weekdays' | 'weekly' | 'once' | 'webhook';
  /** Such as `08:00`. */
  readonly time: string;
  /** 0 is Sunday. */
  readonly weekday: number;
  /** Local date and time, such as `2026-11-16T08:00`. */
  readonly at: string;
}

export const readTimezone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

export function toTrigger({ kind, time, weekday, at }: TriggerChoice): ScheduleTrigger {
  const [hour = 0, minute = 0] = time.split(':').map(Number);
  const timezone = readTimezone();
  const toCron = (days: string) =>
    ({ type: 'cron', cron: `${minute} ${hour} * * ${days}`, timezone }) as const;
  switch (kind) {
    case 'daily':
      return toCron('*');
    case 'weekdays':
      return toCron('1-5');
    case 'weekly':
      return toCron(String(weekday));
    case 'once':
      return { type: 'once', at: new Date(at).toISOString() };
    case 'webhook':
      return { type: 'webhook' };
  }
}

const CRON = /^(\d{1,2}) (\d{1,2}) \* \* (\*|1-5|[0-6])$/;

/** A trigger in words; a cron expression that the form cannot make is shown as it is. */
export function describeTrigger(trigger: ScheduleTrigger): string {
  switch (trigger.type) {
    case 'webhook':
      return t('settings.schedules.webhook');
    case 'once':
      return t('settings.schedules.onceAt', { when: formatDateTime(trigger.at) });
    case 'cron': {
      const [, minute, hour, days] = CRON.exec(trigger.cron) ?? [];
      if (days === undefined) return `${trigger.cron} (${trigger.timezone})`;
      const time = `${formatTime(Number(hour), Number(minute))}${describeZone(trigger.timezone)}`;
      if (days === '*') return t('settings.schedules.dailyAt', { time });
      if (days === '1-5') return t('settings.schedules.weekdaysAt', { time });
      return t('settings.schedules.weeklyAt', { day: formatWeekday(Number(days)), time });
    }
  }
}

/** Only if it is not the one of the browser, in which other times are shown. */
const describeZone = (timezone: string): string =>
  timezone === readTimezone() ? '' : ` (${timezone})`;

const formatTime = (hour: number, minute: number): string =>
  new Intl.DateTimeFormat(getLanguage(), { timeStyle: 'short', timeZone: 'UTC' }).format(
    Date.UTC(2026, 0, 1, hour, minute),
  );

/** 4 January 2026 was a Sunday. */
export const formatWeekday = (weekday: number): string =>
  new Intl.DateTimeFormat(getLanguage(), { weekday: 'long', timeZone: 'UTC' }).format(
    Date.UTC(2026, 0, 4 + weekday),
  );
