import type { DelegationInfo } from '@sibyl/client';
import { type FormEvent, useState } from 'react';
import { useFormDraft } from '../../chat/drafts.js';
import { t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Icon } from '../../ui/icon.js';
import { Failure, FormFoot, LifetimeField, LifetimeSelect, Section, useAction } from '../parts.js';
import {
  type AskedPermission,
  type GrantTerms,
  inDays,
  isGranted,
  isSame,
} from './capabilities.js';

const lifetimes = [7, 1, 30] as const;

interface AskedForProps {
  readonly asked: readonly AskedPermission[];
  readonly current: DelegationInfo | undefined;
  readonly onGrant: (terms: GrantTerms) => Promise<void>;
}

/** What plugins ask for and do not have. */
export function AskedFor({ asked, current, onGrant }: AskedForProps) {
  const [later, setLater] = useState<readonly AskedPermission[]>([]);
  const granted = current?.capabilities ?? [];
  const isPostponed = (each: AskedPermission) =>
    later.some(({ capability }) => isSame(capability, each.capability));
  const open = asked.filter((each) => !isGranted(each.capability, granted) && !isPostponed(each));
  if (open.length === 0) return null;
  return (
    <Section
      title={t('settings.asked.title')}
      badge={
        <span className="badge is-accent">{t('settings.asked.new', { count: open.length })}</span>
      }
    >
      {open.map((each) => (
        <AskedCard
          key={`${each.capability.can} ${each.capability.with}`}
          asked={each}
          others={granted.length}
          onLater={() => setLater([...later, each])}
          onGrant={(days) =>
            onGrant({ capabilities: [...granted, each.capability], expiration: inDays(days) })
          }
        />
      ))}
    </Section>
  );
}

interface AskedCardProps {
  readonly asked: AskedPermission;
  /** How many permissions get the same end. */
  readonly others: number;
  readonly onLater: () => void;
  readonly onGrant: (days: number) => Promise<void>;
}

function AskedCard({ asked, others, onLater, onGrant }: AskedCardProps) {
  const [days, setDays] = useState<number>(lifetimes[0]);
  const { isBusy, error, run } = useAction();
  const { title, reason, plugin, capability } = asked;
  return (
    <div className="card">
      <div className="perm">
        <Icon name="shield" />
        <b dir="auto">{title}</b>
        <LifetimeSelect
          className="input push"
          aria-label={t('settings.validFor')}
          choices={lifetimes}
          days={days}
          onChange={setDays}
        />
        <p className="quiet" dir="auto">
          {t('settings.asked.by', { plugin: plugin.title })} {reason}
        </p>
      </div>
      <TechnicalTerms capabilities={[capability]} />
      {error && (
        <div className="card-pad">
          <Failure error={error} />
        </div>
      )}
      <div className="approval-foot perm-foot">
        <button
          type="button"
          className="btn btn-primary"
          disabled={isBusy}
          onClick={() => void run(() => onGrant(days))}
        >
          {t('settings.asked.allow', { count: days })}
        </button>
        <button type="button" className="btn" disabled={isBusy} onClick={onLater}>
          {t('settings.asked.later')}
        </button>
        {others > 0 && (
          <span className="hint push">{t('settings.asked.sameEnd', { count: others })}</span>
        )}
      </div>
    </div>
  );
}

interface TechnicalTermsProps {
  readonly capabilities: readonly { readonly can: string; readonly with: string }[];
}

export function TechnicalTerms({ capabilities }: TechnicalTermsProps) {
  return (
    <details className="fold perm-fold">
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t('settings.technical')}
      </summary>
      <div>
        <dl className="kv">
          {capabilities.map(({ can, with: resource }) => (
            <div key={`${can} ${resource}`} className="kv-row">
              <dt>
                <code dir="ltr">{can}</code>
              </dt>
              <dd>
                <code dir="ltr">{resource}</code>
              </dd>
            </div>
          ))}
        </dl>
      </div>
    </details>
  );
}

interface OtherPermissionProps {
  readonly current: DelegationInfo | undefined;
  readonly onGrant: (terms: GrantTerms) => Promise<void>;
}

/** A permission that no plugin declares, for services with their own names. */
export function OtherPermission({ current, onGrant }: OtherPermissionProps) {
  const { signer } = usePage();
  const initial = { can: '', resource: signer.did as string, days: lifetimes[0] as number };
  const { values, isTyped, change, clear } = useFormDraft('other-permission', initial);
  const { can, resource, days } = values;
  const [isOpen, setOpen] = useState(isTyped);
  const { isBusy, error, run } = useAction();
  const isTooWide = can.trim() === '*';
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    const capability = { can: can.trim(), with: resource.trim() };
    const capabilities = [...(current?.capabilities ?? []), capability];
    if (await run(() => onGrant({ capabilities, expiration: inDays(days) }))) clear();
  };
  return (
    <details
      className="fold"
      open={isOpen}
      onToggle={({ currentTarget }) => setOpen(currentTarget.open)}
    >
      <summary>
        <Icon name="right" flip className="i-chev" />
        {t('settings.other.title')}
      </summary>
      <form className="card card-pad stack" onSubmit={submit}>
        <p className="quiet small">{t('settings.other.text')}</p>
        <ActionField can={can} isTooWide={isTooWide} onChange={(typed) => change({ can: typed })} />
        <label className="field">
          <span>{t('settings.other.with')}</span>
          <input
            className="input"
            dir="ltr"
            required
            pattern="\s*[A-Za-z][A-Za-z0-9+.\-]*:\S+\s*"
            title={t('settings.other.with.format')}
            placeholder="did:key:z6Mk…"
            value={resource}
            onChange={({ target }) => change({ resource: target.value })}
          />
        </label>
        <LifetimeField choices={lifetimes} days={days} onChange={(days) => change({ days })} />
        <Failure error={error} />
        <FormFoot
          submit={t('settings.asked.allow', { count: days })}
          isDisabled={isBusy || isTooWide}
        />
      </form>
    </details>
  );
}

interface ActionFieldProps {
  readonly can: string;
  readonly isTooWide: boolean;
  readonly onChange: (can: string) => void;
}

const ActionField = ({ can, isTooWide, onChange }: ActionFieldProps) => (
  <label className="field">
    <span>{t('settings.other.can')}</span>
    <input
      className="input"
      dir="ltr"
      required
      pattern="\s*[^\s\/]+\/\S+\s*"
      title={t('settings.other.can.format')}
      placeholder="store/add"
      aria-invalid={isTooWide || undefined}
      value={can}
      onChange={({ target }) => onChange(target.value)}
    />
    {isTooWide && <span className="small is-fault">{t('settings.other.tooWide')}</span>}
  </label>
);
