import type { BrowserSigner } from '@sibyl/client';
import type { BrowserIdentity } from '@sibyl/client/identities';
import { useEffect, useState } from 'react';
import { explainError } from '../../i18n/explain-error.js';
import { t } from '../../i18n/i18n.js';
import { Blank } from '../../ui/error-boundary.js';
import { Icon } from '../../ui/icon.js';
import { keepFocus } from '../../ui/keep-focus.js';
import { useIdentities } from '../identity-status.js';
import { Failure, Section, shortenDid, useAction } from '../parts.js';
import { AddIdentity } from './add-identity.js';
import { findDeviceKey } from './device-link.js';
import { switchIdentity } from './identity-row.js';

interface UnlockScreenProps {
  readonly signer: BrowserSigner;
  readonly onUnlocked: () => void;
}

/**
 * Asks for the passkey of the key in use, before anything is requested in its name. A user who cannot confirm it restores the
 * key from a backup, or uses another identity.
 */
export function UnlockScreen({ signer, onUnlocked }: UnlockScreenProps) {
  const identities = useIdentities() ?? [];
  const [isAdding, setAdding] = useState(() => findDeviceKey() !== undefined);
  const { isBusy, error, run } = useAction();
  useEffect(keepFocus, []);
  const own = identities.find(({ did }) => did === signer.did);
  const others = identities.filter((each) => each !== own);
  const unlock = async () => {
    if (await run(() => signer.unlock())) onUnlocked();
  };
  const endAdding = () => {
    setAdding(false);
    // Restored from a backup, so no passkey is needed any more.
    if (own?.isProtected === false) location.reload();
  };
  return (
    <main className="unlock">
      <div className="stack unlock-card">
        <span className="logo" aria-hidden="true">
          <Icon name="lock" />
        </span>
        <h1 className="title-1">{t('settings.unlock.title')}</h1>
        {own?.name && (
          <p className="strong" dir="auto">
            {own.name}
          </p>
        )}
        <p className="quiet">{t('settings.unlock.text')}</p>
        <Failure error={error} />
        <div className="actions">
          <button
            // biome-ignore lint/a11y/noAutofocus: it is the only thing to do here.
            autoFocus
            type="button"
            className="btn btn-primary"
            disabled={isBusy}
            onClick={unlock}
          >
            <Icon name="key" />
            {isBusy ? t('settings.unlock.busy') : t('settings.unlock.button')}
          </button>
          <button type="button" className="btn" disabled={isBusy} onClick={() => setAdding(true)}>
            {t('settings.unlock.lost')}
          </button>
        </div>
        {others.length > 0 && <OtherIdentities identities={others} />}
      </div>
      {isAdding && <AddIdentity onClose={endAdding} />}
    </main>
  );
}

interface BlockedScreenProps {
  readonly error: Pick<Error, 'message'> & { readonly code?: string };
  /** Absent if the browser has no key, since it cannot store one. */
  readonly did?: string;
}

/** Shown to users who may not use the oracle, and in browsers that cannot keep a key. */
export const BlockedScreen = ({ error, did }: BlockedScreenProps) =>
  did === undefined ? (
    <Blank title={t('settings.unsupported.title')}>
      <p>{t('settings.unsupported.hint')}</p>
      <p className="quiet">{error.message}</p>
    </Blank>
  ) : (
    <Blank title={t('chat.access.title')}>
      <p>{explainError(error)}</p>
      <p>
        {t('chat.access.did')} <code>{did}</code>
      </p>
    </Blank>
  );

function OtherIdentities({ identities }: { readonly identities: readonly BrowserIdentity[] }) {
  return (
    <Section title={t('settings.key.identities')}>
      <ul className="card rows">
        {identities.map(({ did, name = t('settings.key.unnamed') }) => (
          <li key={did}>
            <div className="grow">
              <b dir="auto">{name}</b>
              <div className="small quiet">
                <code dir="ltr">{shortenDid(did)}</code>
              </div>
            </div>
            <button
              type="button"
              className="btn btn-s"
              aria-label={`${t('settings.key.switch')}: ${name}`}
              onClick={() => void switchIdentity(did)}
            >
              {t('settings.key.switch')}
            </button>
          </li>
        ))}
      </ul>
    </Section>
  );
}
