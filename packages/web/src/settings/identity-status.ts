import { useEffect, useState } from 'react';
import { t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';

/** What the sidebar says about the identity in use. */
export interface IdentityStatus {
  readonly name: string;
  readonly needsBackup: boolean;
}

export function useIdentityStatus(): IdentityStatus {
  const { signer } = usePage();
  const [needsBackup, setNeedsBackup] = useState(false);
  useEffect(() => {
    // A key that was never exported exists in this browser only.
    signer.canExport().then(setNeedsBackup, () => undefined);
  }, [signer]);
  return { name: t('chat.you'), needsBackup };
}
