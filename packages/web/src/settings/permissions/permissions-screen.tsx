import type { AccessKeyCaveats, AccessKeyInfo } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { type FormEvent, useCallback, useState } from 'react';
import { useFormDraft, useFormOpen } from '../../chat/drafts.js';
import { formatDate, formatWhen } from '../../i18n/format.js';
import { t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Icon } from '../../ui/icon.js';
import {
  Failure,
  FormFoot,
  LifetimeField,
  PageHead,
  RevocableRow,
  Section,
  ShownOnce,
  useAction,
} from '../parts.js';
import { AskedFor, OtherPermission } from './asked-for.js';
import {
  findCurrent,
  type GrantTerms,
  inDays,
  listAsked,
  type PermissionData,
} from './capabilities.js';
import { GrantedNow } from './granted-now.js';
import { Rules } from './rules.js';

/** What the oracle may do in the user's name. */
export function PermissionsScreen() {
  const { card, signer } = usePage();
  const { value, error, refresh, replace } = usePermissions();
  const name = card.name;
  const current = value && findCurrent(value.delegations);
  return (
    <>
      <PageHead
        title={t('settings.permissions.title', { name })}
        lede={t('settings.permissions.lede', { name })}
      />
      <Failure error={error} onRetry={refresh} />
      {value && (
        <>
          <AskedFor
            asked={listAsked(value.plugins, signer.did)}
            current={current}
            onGrant={replace}
          />
          <GrantedNow data={value} current={current} onReplace={replace} onChange={refresh} />
          <OtherPermission current={current} onGrant={replace} />
          <Rules plugins={value.plugins} />
          <AccessKeys />
        </>
      )}
    </>
  );
}

function usePermissions() {
  const client = useOracle();
  const load = useCallback(
    async (signal: AbortSignal): Promise<PermissionData> => {
      const [delegations, plugins, schedules] = await Promise.all([
        client.delegation.list({ signal }),
        client.plugins.list({ signal }),
        // An oracle without schedules has no such route.
        client.schedules.list({ signal }).catch(() => []),
      ]);
      return { delegations, plugins, schedules };
    },
    [client],
  );
  const { value, error, refresh } = useResource(load);
  /** The oracle acts with one delegation, so a change is a new one with everything that remains. */
  const replace = useCallback(
    async ({ capabilities, expiration }: GrantTerms) => {
      const before = findCurrent(await client.delegation.list());
      if (capabilities.length > 0) await client.delegation.grant({ capabilities, expiration });
      if (before) await client.delegation.revoke(before.cid);
      await refresh();
    },
    [client, refresh],
  );
  return { value, error, refresh, replace };
}

const lifetimes = [30, 7, 90] as const;
const NEW_KEY = 'new-key';
const initialKey = { name: '', days: lifetimes[0] as number, turns: '100', usedBy: 'me' };

/** Who uses the program with a key, and what the key permits them. */
const usedBy = {
  me: {},
  each: { user: '*' },
  anyone: { tools: [] },
} satisfies Readonly<Record<string, AccessKeyCaveats>>;

const isUsedBy = (value: string): value is keyof typeof usedBy => Object.hasOwn(usedBy, value);

/** Keys for programs that cannot sign. */
function AccessKeys() {
  const { keys } = useOracle();
  const [isAdding, setAdding] = useFormOpen(NEW_KEY);
  const [created, setCreated] = useState<string>();
  const load = useCallback((signal: AbortSignal) => keys.list({ signal }), [keys]);
  const { value, error, refresh } = useResource(load);
  return (
    <Section
      title={t('chat.nav.accessKeys')}
      hint={t('settings.keys.hint')}
      action={
        <button type="button" className="btn btn-s" onClick={() => setAdding(true)}>
          <Icon name="plus" />
          {t('settings.keys.new')}
        </button>
      }
    >
      <Failure error={error} onRetry={refresh} />
      {isAdding && (
        <NewKey
          onCancel={() => setAdding(false)}
          onCreated={async (key) => {
            setCreated(key);
            setAdding(false);
            await refresh();
          }}
        />
      )}
      {created !== undefined && (
        <ShownOnce
          text={t('settings.keys.once')}
          values={[[created, t('settings.keys.copy')]]}
          onClose={() => setCreated(undefined)}
        />
      )}
      {value && value.length > 0 && (
        <ul className="card rows">
          {value.map((key) => (
            <KeyRow key={key.id} info={key} onChange={refresh} />
          ))}
        </ul>
      )}
    </Section>
  );
}

interface NewKeyProps {
  readonly onCreated: (key: string) => Promise<void>;
  readonly onCancel: () => void;
}

function NewKey({ onCreated, onCancel }: NewKeyProps) {
  const { keys } = useOracle();
  const { values, change, clear } = useFormDraft(NEW_KEY, initialKey);
  const { name, days, turns, usedBy: who } = values;
  const { isBusy, error, run } = useAction();
  const cancel = () => {
    clear();
    onCancel();
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void run(async () => {
      const caveats = {
        ...(turns && { turnsPerDay: Number(turns) }),
        ...(isUsedBy(who) && usedBy[who]),
      };
      const terms = { name: name.trim(), expiration: inDays(days), ...caveats };
      const { key } = await keys.create(terms);
      clear();
      await onCreated(key);
    });
  };
  return (
    <form className="card card-pad stack" onSubmit={submit}>
      <label className="field">
        <span>{t('settings.keys.name')}</span>
        <input
          // biome-ignore lint/a11y/noAutofocus: the user just asked for the form.
          autoFocus
          className="input"
          dir="auto"
          required
          maxLength={80}
          placeholder={t('settings.keys.name.example')}
          value={name}
          onChange={({ target }) => change({ name: target.value })}
        />
      </label>
      <label className="field">
        <span>{t('settings.keys.for')}</span>
        <select
          className="input"
          value={who}
          onChange={({ target }) => change({ usedBy: target.value })}
        >
          <option value="me">{t('settings.keys.for.me')}</option>
          <option value="each">{t('settings.keys.for.each')}</option>
          <option value="anyone">{t('settings.keys.for.anyone')}</option>
        </select>
      </label>
      <div className="line top">
        <LifetimeField choices={lifetimes} days={days} onChange={(days) => change({ days })} />
        <label className="field">
          <span>{t('settings.keys.turns')}</span>
          <input
            className="input"
            type="number"
            min={1}
            max={1_000_000}
            value={turns}
            onChange={({ target }) => change({ turns: target.value })}
          />
        </label>
      </div>
      <Failure error={error} />
      <FormFoot
        submit={t('settings.keys.create')}
        isDisabled={isBusy}
        cancel={[t('chat.cancel'), cancel]}
      />
    </form>
  );
}

function describeUse({ user, tools }: AccessKeyCaveats): string[] {
  return [
    ...(tools ? [tools.join(', ') || t('settings.keys.for.anyone')] : []),
    ...(user === undefined ? [] : [user === '*' ? t('settings.keys.for.each') : user]),
  ];
}

interface KeyRowProps {
  readonly info: AccessKeyInfo;
  readonly onChange: () => Promise<void>;
}

function KeyRow({ info, onChange }: KeyRowProps) {
  const { keys } = useOracle();
  const { id, name, expiration, lastUsedAt, caveats } = info;
  const facts = [
    caveats.session ? t('settings.keys.oneSession') : t('settings.keys.chat'),
    ...describeUse(caveats),
    ...(caveats.turnsPerDay ? [t('settings.keys.perDay', { count: caveats.turnsPerDay })] : []),
    t('settings.granted.until', { date: formatDate(expiration * 1000) }),
    lastUsedAt
      ? t('settings.granted.used', { when: formatWhen(lastUsedAt) })
      : t('settings.granted.unused'),
  ];
  const revoke = async () => {
    await keys.revoke(id);
    await onChange();
  };
  return <RevocableRow icon="key" title={name} facts={facts} onRevoke={revoke} />;
}
