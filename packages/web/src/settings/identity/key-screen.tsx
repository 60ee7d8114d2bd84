import {
  type BrowserIdentity,
  checkPasskeySupport,
  protectBrowserIdentity,
  unprotectBrowserIdentity,
} from '@sibyl/client/identities';
import { useState } from 'react';
import { type TextKey, t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { toHash } from '../../page/router.js';
import { Icon } from '../../ui/icon.js';
import { announceIdentityChange, useOwnIdentities } from '../identity-status.js';
import { Failure, PageHead, Section, Switch, useAction } from '../parts.js';
import { AddIdentity } from './add-identity.js';
import { BackupCard } from './backup-wizard.js';
import { findDeviceKey } from './device-link.js';
import { IdentityRow } from './identity-row.js';

/** Explains the user's key; backs it up, and adds, switches and protects identities. */
export function KeyScreen() {
  const { signer } = usePage();
  const { identities, own } = useOwnIdentities();
  const [isAdding, setAdding] = useState(() => findDeviceKey() !== undefined);
  return (
    <>
      <PageHead title={t('chat.nav.key')} lede={t('settings.key.lede')} />
      {own && <BackupCard key={own.did} identity={own} />}
      <Section
        title={t('settings.key.identities')}
        action={
          <button type="button" className="btn btn-s" onClick={() => setAdding(true)}>
            <Icon name="plus" />
            {t('settings.key.add')}
          </button>
        }
      >
        <ul className="card rows" aria-busy={identities === undefined}>
          {identities?.map((identity) => (
            <IdentityRow key={identity.did} identity={identity} />
          ))}
        </ul>
        <p className="quiet small">{t('settings.key.identities.hint')}</p>
      </Section>
      <section className="card rows">
        {own && <PasskeyRow key={own.did} identity={own} />}
        <div className="row">
          <Icon name="save" />
          <div className="grow">
            <b>{t('settings.key.data')}</b>
            <div className="small quiet">{t('settings.key.data.hint')}</div>
          </div>
          <a className="btn btn-s" href={toHash({ name: 'settings', screen: 'data' })}>
            {t('chat.nav.data')}
          </a>
        </div>
      </section>
      <ul className="facts">
        <Fact icon="alert" title="settings.key.clearing" text="settings.key.clearing.text" />
        <Fact icon="lock" title="chat.welcome.readers" text="chat.welcome.readers.text" />
      </ul>
      {isAdding && <AddIdentity own={signer.did} onClose={() => setAdding(false)} />}
    </>
  );
}

interface FactProps {
  readonly icon: 'alert' | 'lock';
  readonly title: TextKey;
  readonly text: TextKey;
}

function Fact({ icon, title, text }: FactProps) {
  return (
    <li>
      <Icon name={icon} />
      <div>
        <b>{t(title)}</b>
        <p>{t(text)}</p>
      </div>
    </li>
  );
}

const passkeyReasons = {
  browser: 'settings.passkey.browser',
  address: 'settings.passkey.address',
  backup: 'settings.passkey.backup',
} as const satisfies Record<string, TextKey>;

/** Makes this browser ask before it uses the key. */
function PasskeyRow({ identity }: { readonly identity: BrowserIdentity }) {
  const { did, isProtected, backedUpAt, name } = identity;
  const { isBusy, error, run } = useAction();
  // A passkey that is lost would take the key with it.
  const reason = checkPasskeySupport() ?? (backedUpAt === undefined ? 'backup' : undefined);
  const change = () =>
    run(async () => {
      if (isProtected) await unprotectBrowserIdentity(did);
      else await protectBrowserIdentity(did, name ?? t('chat.you'));
      announceIdentityChange();
    });
  return (
    <div className="row row-wrap">
      <Icon name="lock" />
      <div className="grow">
        <b>{t('settings.passkey.title')}</b>
        <div className="small quiet" id="passkey-hint">
          {t(reason && !isProtected ? passkeyReasons[reason] : 'settings.passkey.hint')}
        </div>
      </div>
      <Switch
        label={t('settings.passkey.title')}
        describedBy="passkey-hint"
        isOn={isProtected}
        isDisabled={isBusy || (reason !== undefined && !isProtected)}
        onChange={change}
      />
      {error && (
        <div className="row-below">
          <Failure error={error} />
        </div>
      )}
    </div>
  );
}
