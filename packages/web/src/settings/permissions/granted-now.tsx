import type { DelegationInfo, StoppedWork } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useState } from 'react';
import { formatDate, formatWhen, nowMs } from '../../i18n/format.js';
import { t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Icon, type IconName } from '../../ui/icon.js';
import { Confirm, Empty, Failure, Section, useAction } from '../parts.js';
import { TechnicalTerms } from './asked-for.js';
import {
  DAY_SECONDS,
  endsSoon,
  type GrantTerms,
  isExpired,
  isSame,
  listAsked,
  type PermissionData,
} from './capabilities.js';

interface GrantedNowProps {
  readonly data: PermissionData;
  readonly current: DelegationInfo | undefined;
  readonly onReplace: (terms: GrantTerms) => Promise<void>;
  readonly onChange: () => Promise<void>;
}

/** One thing that the oracle may do. */
interface Granted {
  readonly id: string;
  readonly icon: IconName;
  readonly title: string;
  readonly isTooWide: boolean;
  readonly delegation: DelegationInfo;
  readonly capabilities: DelegationInfo['capabilities'];
  readonly revoke: () => Promise<unknown>;
  readonly extend?: () => Promise<unknown>;
}

const EXTENSION_DAYS = 7;

export function GrantedNow({ data, current, onReplace, onChange }: GrantedNowProps) {
  const { delegation: routes } = useOracle();
  const { card } = usePage();
  const [isRevokingAll, setRevokingAll] = useState(false);
  const [stopped, setStopped] = useState<readonly StoppedWork[]>([]);
  const granted = useGranted({ data, current, onReplace, onChange, onStopped: setStopped });
  return (
    <Section
      title={t('settings.granted.title')}
      action={
        granted.length > 0 && (
          <button
            type="button"
            className="btn btn-s btn-danger"
            onClick={() => setRevokingAll(true)}
          >
            {t('settings.granted.revokeAll')}
          </button>
        )
      }
    >
      {stopped.length > 0 && (
        <p role="status" className="small">
          {t('settings.schedules.stopped')} {stopped.map(({ name }) => name).join(', ')}
        </p>
      )}
      {granted.length === 0 ? (
        <Empty
          title={t('settings.granted.none')}
          hint={t('settings.granted.none.hint', { name: card.name })}
        />
      ) : (
        <div className="card">
          {granted.map((each) => (
            <GrantedRow key={each.id} granted={each} plugins={data.plugins} />
          ))}
        </div>
      )}
      {isRevokingAll && (
        <Confirm
          title={t('settings.granted.revokeAll.title')}
          text={t('settings.granted.revokeAll.text', { name: card.name })}
          confirm={t('settings.granted.revokeAll')}
          onClose={() => setRevokingAll(false)}
          onConfirm={async () => {
            setStopped((await routes.revokeAll()).stopped);
            await onChange();
          }}
        />
      )}
    </Section>
  );
}

interface GrantedOptions extends GrantedNowProps {
  /** What runs no more since a permission was revoked. */
  readonly onStopped: (stopped: readonly StoppedWork[]) => void;
}

function useGranted({
  data,
  current,
  onReplace,
  onChange,
  onStopped,
}: GrantedOptions): readonly Granted[] {
  const { delegation: routes } = useOracle();
  const { signer } = usePage();
  const asked = listAsked(data.plugins, signer.did);
  const revoke = (cid: string) => async () => {
    onStopped(await routes.revoke(cid));
    await onChange();
  };
  const ofCurrent = (delegation: DelegationInfo): Granted[] =>
    delegation.capabilities.map((capability) => {
      const { capabilities, expiration } = delegation;
      const remaining = capabilities.filter((each) => !isSame(each, capability));
      const known = asked.find((each) => isSame(each.capability, capability));
      const extended = (expiration ?? 0) + EXTENSION_DAYS * DAY_SECONDS;
      return {
        id: `${delegation.cid} ${capability.can} ${capability.with}`,
        icon: 'shield',
        title: known?.title ?? describe(capability),
        isTooWide: capability.can === '*',
        delegation,
        capabilities: [capability],
        revoke: () =>
          expiration === undefined || remaining.length === 0
            ? revoke(delegation.cid)()
            : onReplace({ capabilities: remaining, expiration }),
        ...(expiration !== undefined &&
          endsSoon(expiration) && {
            extend: () => onReplace({ capabilities, expiration: extended }),
          }),
      };
    });
  const ofOther = (delegation: DelegationInfo): Granted[] => {
    const schedule = data.schedules.find((each) => each.delegation?.cid === delegation.cid);
    const isSchedule = delegation.purpose === 'schedule';
    const account = findMatrixAccount(delegation);
    return [
      {
        id: delegation.cid,
        icon: account ? 'chat' : isSchedule ? 'cal' : 'shield',
        title: account
          ? t('settings.granted.matrix', { account })
          : isSchedule
            ? t('settings.granted.schedule', { name: schedule?.name ?? '…' })
            : delegation.capabilities.map(describe).join(', '),
        isTooWide: delegation.capabilities.some(({ can }) => can === '*'),
        delegation,
        capabilities: delegation.capabilities,
        revoke: revoke(delegation.cid),
      },
    ];
  };
  const shown = data.delegations.filter(
    ({ purpose, expiration }) =>
      ['services', 'schedule'].includes(purpose) && !isExpired(expiration),
  );
  return shown.flatMap((each) => (each.cid === current?.cid ? ofCurrent(each) : ofOther(each)));
}

/** The account of a delegation with which the oracle answers in Matrix. */
function findMatrixAccount({ capabilities }: DelegationInfo): string | undefined {
  const [, account] = capabilities[0]?.with.split(':matrix/') ?? [];
  return account && decodeURIComponent(account);
}

const describe = ({ can }: { readonly can: string }): string =>
  can === '*' ? t('settings.granted.everything') : t('settings.granted.use', { can });

interface GrantedRowProps {
  readonly granted: Granted;
  readonly plugins: PermissionData['plugins'];
}

function GrantedRow({ granted, plugins }: GrantedRowProps) {
  const { icon, title, isTooWide, delegation, capabilities, revoke, extend } = granted;
  const { isBusy, error, run } = useAction();
  return (
    <div className="perm">
      <Icon name={icon} />
      <b dir="auto">
        {title}{' '}
        {isTooWide && <span className="badge is-warning">{t('settings.granted.tooWide')}</span>}
      </b>
      <button
        type="button"
        className="btn btn-s push"
        disabled={isBusy}
        aria-label={t('settings.granted.revoke.label', { title })}
        onClick={() => void run(revoke)}
      >
        {t('settings.granted.revoke')}
      </button>
      <p className="small quiet">
        <Expiry expiration={delegation.expiration} /> · {describeUse(delegation, plugins)}
        {extend && (
          <>
            {' · '}
            <button
              type="button"
              className="link"
              disabled={isBusy}
              onClick={() => void run(extend)}
            >
              {t('settings.granted.extend', { count: EXTENSION_DAYS })}
            </button>
          </>
        )}
      </p>
      <TechnicalTerms capabilities={capabilities} />
      {error && (
        <div className="perm-below">
          <Failure error={error} />
        </div>
      )}
    </div>
  );
}

function Expiry({ expiration }: { readonly expiration: number | undefined }) {
  if (expiration === undefined) {
    return <span className="is-warning">{t('settings.granted.noEnd')}</span>;
  }
  const end = expiration * 1000;
  const isToday = end - nowMs() < DAY_SECONDS * 1000;
  const text = isToday
    ? t('settings.granted.ends', { when: formatWhen(end) })
    : t('settings.granted.until', { date: formatDate(end) });
  return endsSoon(expiration) ? <span className="is-warning">{text}</span> : text;
}

function describeUse(
  { lastUsedAt, lastUsedBy }: DelegationInfo,
  plugins: PermissionData['plugins'],
): string {
  if (lastUsedAt === undefined) return t('settings.granted.unused');
  const when = formatWhen(lastUsedAt);
  if (lastUsedBy === undefined) return t('settings.granted.used', { when });
  const plugin = plugins.find(({ name }) => name === lastUsedBy)?.title ?? lastUsedBy;
  return t('settings.granted.usedBy', { when, plugin });
}
