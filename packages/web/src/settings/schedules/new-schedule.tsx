import type { ScheduleWithSecret } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { type FormEvent, useState } from 'react';
import { type TextKey, t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Failure, useAction } from '../parts.js';
import { inDays } from '../permissions/capabilities.js';
import { formatWeekday, readTimezone, type TriggerChoice, toTrigger } from './trigger.js';

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

/** Signs a permission for the schedule alone and creates it. */
export function NewSchedule({ onCreated, onCancel }: NewScheduleProps) {
  const { card } = usePage();
  const { schedules } = useOracle();
  const [message, setMessage] = useState('');
  const [choice, setChoice] = useState<TriggerChoice>({
    kind: 'weekdays',
    time: '08:00',
    weekday: 1,
    at: '',
  });
  const [days, setDays] = useState<number>(lifetimes[0]);
  const [catchUp, setCatchUp] = useState<'once' | 'skip'>('once');
  const { isBusy, error, run } = useAction();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const [firstLine = ''] = message.trim().split('\n');
      const schedule = await schedules.create({
        name: firstLine.slice(0, MAX_NAME),
        message: message.trim(),
        trigger: toTrigger(choice),
        catchUp,
        expiration: inDays(days),
      });
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
          onChange={({ target }) => setMessage(target.value)}
        />
      </label>
      <TriggerFields choice={choice} onChange={setChoice} />
      <div className="line top">
        <label className="field">
          <span>{t('settings.validFor')}</span>
          <select
            className="input"
            value={days}
            onChange={({ target }) => setDays(Number(target.value))}
          >
            {lifetimes.map((each) => (
              <option key={each} value={each}>
                {t('settings.forDays', { count: each })}
              </option>
            ))}
          </select>
        </label>
        {choice.kind !== 'webhook' && (
          <label className="field">
            <span>{t('settings.schedules.missed')}</span>
            <select
              className="input"
              value={catchUp}
              onChange={({ target }) => setCatchUp(target.value as 'once' | 'skip')}
            >
              <option value="once">{t('settings.schedules.catchUp')}</option>
              <option value="skip">{t('settings.schedules.skip')}</option>
            </select>
          </label>
        )}
      </div>
      <Failure error={error} />
      <div className="actions">
        <button type="submit" className="btn btn-primary" disabled={isBusy}>
          {t('settings.schedules.create')}
        </button>
        <button type="button" className="btn btn-quiet" onClick={onCancel}>
          {t('settings.cancel')}
        </button>
      </div>
    </form>
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
        <label className="field">
          <span>{t('settings.schedules.day')}</span>
          <select
            className="input"
            value={weekday}
            onChange={({ target }) => set({ weekday: Number(target.value) })}
          >
            {[1, 2, 3, 4, 5, 6, 0].map((day) => (
              <option key={day} value={day}>
                {formatWeekday(day)}
              </option>
            ))}
          </select>
        </label>
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
            value={at}
            onChange={({ target }) => set({ at: target.value })}
          />
        </label>
      )}
    </div>
  );
}
