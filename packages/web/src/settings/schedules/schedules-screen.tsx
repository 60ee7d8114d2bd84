import type { Schedule, ScheduleRun, ScheduleWithSecret } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { useCallback, useEffect, useState } from 'react';
import { useFormOpen } from '../../chat/drafts.js';
import { formatDate, formatDateTime, formatWhen } from '../../i18n/format.js';
import { type TextKey, t } from '../../i18n/i18n.js';
import { usePage, useSessionChanges } from '../../page/page-context.js';
import { toHash } from '../../page/router.js';
import { Icon, type IconName } from '../../ui/icon.js';
import { Menu } from '../../ui/menu.js';
import { Confirm, Empty, Failure, PageHead, ShownOnce, Switch, useAction } from '../parts.js';
import { inDays } from '../permissions/capabilities.js';
import { describeTrigger, NEW_SCHEDULE, NewSchedule } from './new-schedule.js';

const RENEWAL_DAYS = 30;

/** What the oracle does at set times, or when a webhook arrives. */
export function SchedulesScreen() {
  const { card } = usePage();
  const [isAdding, setAdding] = useFormOpen(NEW_SCHEDULE);
  const [created, setCreated] = useState<ScheduleWithSecret>();
  const { value, error, refresh } = useSchedules();
  if (error?.status === 404) {
    return <PageHead title={t('chat.nav.schedules')} lede={t('settings.schedules.unavailable')} />;
  }
  return (
    <>
      <PageHead
        title={t('chat.nav.schedules')}
        lede={t('settings.schedules.lede', { name: card.name })}
      >
        <button
          type="button"
          className={isAdding ? 'btn' : 'btn btn-primary'}
          onClick={() => setAdding(true)}
        >
          <Icon name="plus" />
          {t('settings.schedules.new')}
        </button>
      </PageHead>
      <Failure error={error} onRetry={refresh} />
      {isAdding && (
        <NewSchedule
          onCancel={() => setAdding(false)}
          onCreated={async (schedule) => {
            setCreated(schedule);
            setAdding(false);
            await refresh();
          }}
        />
      )}
      {created?.webhookSecret && (
        <ShownOnce
          text={t('settings.schedules.secret')}
          values={[
            [created.webhookUrl ?? '', t('settings.schedules.copyUrl')],
            [created.webhookSecret, t('settings.schedules.copySecret')],
          ]}
          onClose={() => setCreated(undefined)}
        />
      )}
      {value && value.length > 0 && (
        <ul className="card rows">
          {value.map((schedule) => (
            <ScheduleRow key={schedule.id} schedule={schedule} onChange={refresh} />
          ))}
        </ul>
      )}
      {value?.length === 0 && !isAdding && (
        <Empty title={t('settings.schedules.none')} hint={t('settings.schedules.none.hint')} />
      )}
    </>
  );
}

/** The schedules of the user; a run may change one. */
function useSchedules() {
  const { schedules } = useOracle();
  const load = useCallback((signal: AbortSignal) => schedules.list({ signal }), [schedules]);
  const resource = useResource(load);
  const { value, refresh } = resource;
  useSessionChanges(({ change, sessionId }) => {
    if (change === 'reload' || value?.some((each) => each.sessionId === sessionId)) void refresh();
  });
  return resource;
}

const icons = { cron: 'cal', once: 'clock', webhook: 'link' } as const satisfies Record<
  Schedule['trigger']['type'],
  IconName
>;

interface ScheduleRowProps {
  readonly schedule: Schedule;
  readonly onChange: () => Promise<void>;
}

function ScheduleRow({ schedule, onChange }: ScheduleRowProps) {
  const { schedules } = useOracle();
  const [isRemoving, setRemoving] = useState(false);
  const [isShowingRuns, setShowingRuns] = useState(false);
  const [changes, setChanges] = useState(0);
  const { isBusy, error, run } = useAction();
  const { id, name, trigger } = schedule;
  const change = (work: () => Promise<unknown>) =>
    run(async () => {
      await work();
      setChanges((count) => count + 1);
      await onChange();
    });
  return (
    <li className="row-wrap">
      <Icon name={icons[trigger.type]} />
      <div className="grow">
        <b dir="auto">{name}</b>
        <div className="small quiet">
          {describeTrigger(trigger)} · <Status schedule={schedule} />
        </div>
        {schedule.status === 'unauthorized' && <Unsigned schedule={schedule} />}
      </div>
      <ScheduleControls schedule={schedule} isBusy={isBusy} change={change} />
      <ScheduleMenu
        schedule={schedule}
        onRun={() => void change(() => schedules.run(id))}
        onRuns={() => setShowingRuns(!isShowingRuns)}
        onRemove={() => setRemoving(true)}
      />
      {(error || isShowingRuns) && (
        <div className="row-below stack stack-2">
          <Failure error={error} />
          {isShowingRuns && <Runs key={changes} schedule={schedule} />}
        </div>
      )}
      {isRemoving && (
        <Confirm
          title={t('settings.delete.title', { name })}
          text={t('settings.schedules.delete.text')}
          confirm={t('chat.delete')}
          onClose={() => setRemoving(false)}
          onConfirm={async () => {
            await schedules.delete(id);
            await onChange();
          }}
        />
      )}
    </li>
  );
}

/** What renewing the permission signs. */
const Unsigned = ({
  schedule: { message, resultUrl, resultTo },
}: {
  readonly schedule: Schedule;
}) => (
  <div className="small" dir="auto">
    {message} {resultUrl ?? resultTo}
  </div>
);

interface ScheduleControlsProps {
  readonly schedule: Schedule;
  readonly isBusy: boolean;
  readonly change: (work: () => Promise<unknown>) => Promise<unknown>;
}

/** Switches a schedule on and off; renews its permission. */
function ScheduleControls({ schedule, isBusy, change }: ScheduleControlsProps) {
  const { schedules } = useOracle();
  const { id, name, status } = schedule;
  const renew = () => schedules.authorize(schedule, { expiration: inDays(RENEWAL_DAYS) });
  return (
    <>
      {(status === 'unauthorized' || status === 'stopped' || endsBeforeNext(schedule)) && (
        <button
          type="button"
          className="btn btn-s"
          disabled={isBusy}
          onClick={() => void change(renew)}
        >
          {t('settings.schedules.renew', { count: RENEWAL_DAYS })}
        </button>
      )}
      <Switch
        label={t('settings.schedules.on', { name })}
        isOn={status === 'active'}
        isDisabled={isBusy || !['active', 'paused'].includes(status)}
        onChange={(isOn) =>
          void change(() => schedules.update(id, { status: isOn ? 'active' : 'paused' }))
        }
      />
    </>
  );
}

interface ScheduleMenuProps {
  readonly schedule: Schedule;
  readonly onRun: () => void;
  readonly onRuns: () => void;
  readonly onRemove: () => void;
}

function ScheduleMenu({ schedule, onRun, onRuns, onRemove }: ScheduleMenuProps) {
  const { name, sessionId } = schedule;
  return (
    <Menu
      label={t('settings.moreFor', { name })}
      groups={[
        [
          { label: t('settings.schedules.run'), icon: 'redo', run: onRun },
          { label: t('settings.schedules.runs'), icon: 'pulse', run: onRuns },
          {
            label: t('settings.schedules.open'),
            icon: 'chat',
            href: toHash({ name: 'conversation', sessionId }),
          },
        ],
        [
          {
            label: t('chat.delete'),
            icon: 'trash',
            isDanger: true,
            run: onRemove,
          },
        ],
      ]}
    >
      <Icon name="more" />
    </Menu>
  );
}

/** Whether the permission of a schedule ends before it runs again. */
const endsBeforeNext = ({ status, nextDueAt, delegation }: Schedule): boolean =>
  status === 'active' &&
  nextDueAt !== undefined &&
  delegation?.expiration !== undefined &&
  delegation.expiration * 1000 < Date.parse(nextDueAt);

function Status({ schedule }: { readonly schedule: Schedule }) {
  const { status, nextDueAt, delegation, reason } = schedule;
  switch (status) {
    case 'active':
      return (
        <>
          {nextDueAt && `${t('settings.schedules.next', { when: formatDateTime(nextDueAt) })} · `}
          {endsBeforeNext(schedule) ? (
            <span className="is-warning">{t('settings.schedules.endsBefore')}</span>
          ) : (
            delegation?.expiration !== undefined &&
            t('settings.schedules.until', { date: formatDate(delegation.expiration * 1000) })
          )}
        </>
      );
    case 'paused':
      return t('settings.schedules.paused');
    case 'unauthorized':
      return <span className="is-warning">{t('settings.schedules.unauthorized')}</span>;
    case 'stopped':
      return (
        <span className="is-warning">
          {t('settings.schedules.stopped')} {reason}
        </span>
      );
    case 'finished':
      return t('settings.schedules.finished');
  }
}

const runStates = {
  starting: 'settings.run.running',
  running: 'settings.run.running',
  paused: 'settings.run.paused',
  finished: 'settings.run.finished',
  failed: 'settings.run.failed',
  aborted: 'settings.run.aborted',
  interrupted: 'settings.run.interrupted',
  skipped: 'settings.run.skipped',
} as const satisfies Record<ScheduleRun['status'], TextKey>;

const POLL_MS = 2_000;

function Runs({ schedule: { id, sessionId } }: { readonly schedule: Schedule }) {
  const { schedules } = useOracle();
  const load = useCallback(
    (signal: AbortSignal) => schedules.runs(id, { limit: 10, signal }),
    [schedules, id],
  );
  const { value, error, refresh } = useResource(load);
  useSessionChanges((event) => {
    if (event.sessionId === sessionId || event.change === 'reload') void refresh();
  });
  // How a run has ended is stored after its turn.
  const isRunning = value?.some(({ status }) => status === 'starting' || status === 'running');
  useEffect(() => {
    const timer = isRunning ? setInterval(() => void refresh(), POLL_MS) : undefined;
    return () => clearInterval(timer);
  }, [isRunning, refresh]);
  if (value?.length === 0) return <p className="small quiet">{t('settings.run.none')}</p>;
  return (
    <>
      <Failure error={error} onRetry={refresh} />
      <ul className="small">
        {value?.map(({ dueAt, status, error: reason }) => (
          <li key={dueAt}>
            {formatWhen(dueAt)}: {t(runStates[status])} {reason}
          </li>
        ))}
      </ul>
    </>
  );
}
