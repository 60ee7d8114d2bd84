import type { ScheduleTrigger, ScheduleWithSecret } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import type { FormEvent } from 'react';
import { useFormDraft } from '../../chat/drafts.js';
import { formatDateTime } from '../../i18n/format.js';
import { getLanguage, type TextKey, t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Failure, FormFoot, LifetimeField, useAction } from '../parts.js';
import { inDays } from '../permissions/capabilities.js';

interface NewScheduleProps {
  readonly onCreated: (schedule: ScheduleWithSecret) => Promise<void>;
  readonly onCancel: () => void;
}

const kinds = {
  weekdays: 'settings.schedules.weekdays',
  daily: 'settings.schedules.daily',
  weekly: 'settings.schedules.weekly',
  once: 'settings.schedules.once',
  webhook: 'settings.schedules.webhook',
} as const satisfies Record<TriggerChoice['kind'], TextKey>;

const lifetimes = [30, 7, 90] as const;
const MAX_NAME = 100;

type CatchUp = 'once' | 'skip';

interface Fields {
  readonly message: string;
  readonly choice: TriggerChoice;
  readonly days: number;
  readonly catchUp: CatchUp;
}

const initial: Fields = {
  message: '',
  choice: { kind: 'weekdays', time: '08:00', weekday: 1, at: '' },
  days: lifetimes[0],
  catchUp: 'once',
};

export const NEW_SCHEDULE = 'new-schedule';

/** Signs a permission for the schedule alone and creates it. */
export function NewSchedule({ onCreated, onCancel }: NewScheduleProps) {
  const { card } = usePage();
  const { schedules } = useOracle();
  const { values, change, clear } = useFormDraft(NEW_SCHEDULE, initial);
  const { message, choice, days, catchUp } = values;
  const { isBusy, error, run } = useAction();
  const cancel = () => {
    clear();
    onCancel();
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const schedule = await schedules.create(toWanted(values));
      clear();
      await onCreated(schedule);
    });
  };
  return (
    <form className="card card-pad stack" onSubmit={submit}>
      <h2 className="title-2">{t('settings.schedules.new')}</h2>
      <label className="field">
        <span>{t('settings.schedules.what', { name: card.name })}</span>
        <textarea
          // biome-ignore lint/a11y/noAutofocus: the user just asked for the form.
          autoFocus
          className="input"
          dir="auto"
          rows={2}
          required
          maxLength={10_000}
          value={message}
          onChange={({ target }) => change({ message: target.value })}
        />
      </label>
      <TriggerFields choice={choice} onChange={(chosen) => change({ choice: chosen })} />
      <div className="line top">
        <LifetimeField choices={lifetimes} days={days} onChange={(days) => change({ days })} />
        {choice.kind !== 'webhook' && (
          <CatchUpField value={catchUp} onChange={(chosen) => change({ catchUp: chosen })} />
        )}
      </div>
      <Failure error={error} findLabel={(path) => findLabel(path, card.name)} />
      <FormFoot
        submit={t('settings.keys.create')}
        isDisabled={isBusy}
        cancel={[t('chat.cancel'), cancel]}
      />
    </form>
  );
}

function toWanted({ message, choice, days, catchUp }: Fields) {
  const [firstLine = ''] = message.trim().split('\n');
  return {
    name: firstLine.slice(0, MAX_NAME),
    message: message.trim(),
    trigger: toTrigger(choice),
    catchUp,
    expiration: inDays(days),
  };
}

/** The name of a schedule is the first line of what it does. */
function findLabel(path: string, name: string): string | undefined {
  if (path === 'trigger.at') return t('settings.schedules.time');
  if (path.startsWith('trigger')) return t('settings.schedules.when');
  return ['name', 'message'].includes(path) ? t('settings.schedules.what', { name }) : undefined;
}

interface CatchUpFieldProps {
  readonly value: CatchUp;
  readonly onChange: (value: CatchUp) => void;
}

/** What happens with times that were missed. */
function CatchUpField({ value, onChange }: CatchUpFieldProps) {
  return (
    <label className="field">
      <span>{t('settings.schedules.missed')}</span>
      <select
        className="input"
        value={value}
        onChange={({ target }) => onChange(target.value as CatchUp)}
      >
        <option value="once">{t('settings.schedules.catchUp')}</option>
        <option value="skip">{t('settings.schedules.skip')}</option>
      </select>
    </label>
  );
}

interface TriggerFieldsProps {
  readonly choice: TriggerChoice;
  readonly onChange: (choice: TriggerChoice) => void;
}

function TriggerFields({ choice, onChange }: TriggerFieldsProps) {
  const { kind, time, weekday, at } = choice;
  const set = (change: Partial<TriggerChoice>) => onChange({ ...choice, ...change });
  return (
    <div className="line top">
      <label className="field">
        <span>{t('settings.schedules.when')}</span>
        <select
          className="input"
          value={kind}
          onChange={({ target }) => set({ kind: target.value as TriggerChoice['kind'] })}
        >
          {Object.entries(kinds).map(([id, label]) => (
            <option key={id} value={id}>
              {t(label)}
            </option>
          ))}
        </select>
      </label>
      {kind === 'weekly' && (
        <WeekdayField weekday={weekday} onChange={(day) => set({ weekday: day })} />
      )}
      {['daily', 'weekdays', 'weekly'].includes(kind) && (
        <label className="field">
          <span>{t('settings.schedules.time')}</span>
          <input
            className="input"
            type="time"
            required
            value={time}
            onChange={({ target }) => set({ time: target.value })}
          />
          <span className="hint">{t('settings.schedules.timezone', { zone: readTimezone() })}</span>
        </label>
      )}
      {kind === 'once' && (
        <label className="field">
          <span>{t('settings.schedules.time')}</span>
          <input
            className="input"
            type="datetime-local"
            required
            min={toLocalTime(new Date())}
            value={at}
            onChange={({ target }) => set({ at: target.value })}
          />
        </label>
      )}
    </div>
  );
}

interface WeekdayFieldProps {
  readonly weekday: number;
  readonly onChange: (weekday: number) => void;
}

function WeekdayField({ weekday, onChange }: WeekdayFieldProps) {
  return (
    <label className="field">
      <span>{t('settings.schedules.day')}</span>
      <select
        className="input"
        value={weekday}
        onChange={({ target }) => onChange(Number(target.value))}
      >
        {[1, 2, 3, 4, 5, 6, 0].map((day) => (
          <option key={day} value={day}>
            {formatWeekday(day)}
          </option>
        ))}
      </select>
    </label>
  );
}

/** When a schedule runs, as the form asks for it. */
interface TriggerChoice {
  readonly kind: 'daily' | 'weekdays' | 'weekly' | 'once' | 'webhook';
  /** Such as `08:00`. */
  readonly time: string;
  /** 0 is Sunday. */
  readonly weekday: number;
  /** Local date and time, such as `2026-11-16T08:00`. */
  readonly at: string;
}

const toLocalTime = (date: Date): string =>
  new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

const readTimezone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

function toTrigger({ kind, time, weekday, at }: TriggerChoice): ScheduleTrigger {
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
const formatWeekday = (weekday: number): string =>
  new Intl.DateTimeFormat(getLanguage(), { weekday: 'long', timeZone: 'UTC' }).format(
    Date.UTC(2026, 0, 4 + weekday),
  );
