import type { BrowserIdentity } from '@sibyl/client/identities';
import { useEffect, useState } from 'react';
import { loadArea, t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { toHash, useRoute } from '../page/router.js';
import { readText, storeText } from '../page/stored-value.js';
import { Icon } from '../ui/icon.js';

/** What the sidebar says about the identity in use. */
interface IdentityStatus {
  readonly name: string;
  readonly needsBackup: boolean;
}

/** Reports changes of identities to this tab and to the others. */
const changes = new EventTarget();
const channel = openChannel();
if (channel) channel.onmessage = () => changes.dispatchEvent(new Event('change'));

/** Firefox refuses it if it blocks the storage of the site; the page then says that it cannot keep a key. */
function openChannel(): BroadcastChannel | undefined {
  try {
    return new BroadcastChannel('sibyl-identities');
  } catch {
    return undefined;
  }
}

export function announceIdentityChange(): void {
  channel?.postMessage('change');
  changes.dispatchEvent(new Event('change'));
}

/** All identities of this browser, the one in use first; undefined until they are read. */
export function useIdentities(): readonly BrowserIdentity[] | undefined {
  const [identities, setIdentities] = useState<readonly BrowserIdentity[]>();
  useEffect(() => {
    let isMounted = true;
    const read = async () => {
      const { listBrowserIdentities } = await import('@sibyl/client/identities');
      const found = await listBrowserIdentities();
      if (isMounted) setIdentities(found);
    };
    // A browser that cannot read its keys has shown an error already: no request can be signed.
    const reload = () => void read().catch(() => undefined);
    reload();
    changes.addEventListener('change', reload);
    return () => {
      isMounted = false;
      changes.removeEventListener('change', reload);
    };
  }, []);
  return identities;
}

/** The same, where the one in use is that of this tab: another tab may have switched to another one. */
export function useOwnIdentities() {
  const { signer } = usePage();
  const identities = useIdentities()?.map((each) => ({
    ...each,
    isActive: each.did === signer.did,
  }));
  return { identities, own: identities?.find(({ isActive }) => isActive) };
}

export function useIdentityStatus(): IdentityStatus {
  const { own } = useOwnIdentities();
  return {
    name: own?.name ?? t('chat.you'),
    needsBackup: own !== undefined && own.backedUpAt === undefined,
  };
}

const KEY = 'sibyl-backup-reminder';
const DAY_MS = 86_400_000;

/** Reminds the user until there is a backup; at most once a day if they put it off. */
export function BackupReminder() {
  const { needsBackup } = useIdentityStatus();
  const route = useRoute();
  const [postponed, setPostponed] = useState(() => Number(readText(KEY) ?? 0));
  const [isLoaded, setLoaded] = useState(false);
  const isOnScreen = route.name === 'settings' && route.screen === 'key';
  // A visitor who has not written anything has nothing to lose yet.
  const isShown = needsBackup && route.name !== 'welcome' && Date.now() > postponed;
  useEffect(() => {
    if (isShown)
      loadArea('settings').then(
        () => setLoaded(true),
        () => undefined,
      );
  }, [isShown]);
  if (!isShown || !isLoaded) return null;
  const postpone = () => {
    const until = Date.now() + DAY_MS;
    storeText(KEY, String(until));
    setPostponed(until);
  };
  return (
    <aside className="banner is-warning" aria-label={t('settings.reminder.label')}>
      <Icon name="alert" />
      <span className="grow">{t('settings.reminder.text')}</span>
      <span className="actions">
        {!isOnScreen && (
          <a className="btn btn-s" href={toHash({ name: 'settings', screen: 'key' })}>
            {t('settings.reminder.now')}
          </a>
        )}
        <button type="button" className="btn btn-quiet btn-s" onClick={postpone}>
          {t('settings.reminder.later')}
        </button>
      </span>
    </aside>
  );
}
