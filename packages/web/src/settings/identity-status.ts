import type { BrowserIdentity } from '@sibyl/client/identities';
import { useEffect, useState } from 'react';
import { t } from '../i18n/i18n.js';

/** What the sidebar says about the identity in use. */
export interface IdentityStatus {
  readonly name: string;
  readonly needsBackup: boolean;
}

/** Reports changes of identities to this tab and to the others. */
const channel = new BroadcastChannel('sibyl-identities');
const changes = new EventTarget();
channel.onmessage = () => changes.dispatchEvent(new Event('change'));

export function announceIdentityChange(): void {
  channel.postMessage('change');
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

export function useIdentityStatus(): IdentityStatus {
  const active = useIdentities()?.[0];
  return {
    name: active?.name ?? t('chat.you'),
    needsBackup: active?.canBackUp === true && active.backedUpAt === undefined,
  };
}
