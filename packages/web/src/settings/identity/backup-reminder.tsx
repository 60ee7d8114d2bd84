import { useEffect, useState } from 'react';
import { loadArea, t } from '../../i18n/i18n.js';
import { toHash, useRoute } from '../../page/router.js';
import { Icon } from '../../ui/icon.js';
import { useIdentityStatus } from '../identity-status.js';

const KEY = 'sibyl-backup-reminder';
const DAY_MS = 86_400_000;

/** Reminds the user until there is a backup; at most once a day if they put it off. */
export function BackupReminder() {
  const { needsBackup } = useIdentityStatus();
  const route = useRoute();
  const [postponed, setPostponed] = useState(() => Number(localStorage.getItem(KEY) ?? 0));
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
    localStorage.setItem(KEY, String(until));
    setPostponed(until);
  };
  return (
    <aside className="banner is-warning" aria-label={t('settings.reminder.label')}>
      <Icon name="alert" />
      <span className="grow">{t('settings.reminder.text')}</span>
      {!isOnScreen && (
        <a className="btn btn-s" href={toHash({ name: 'settings', screen: 'key' })}>
          {t('settings.reminder.now')}
        </a>
      )}
      <button type="button" className="btn btn-quiet btn-s" onClick={postpone}>
        {t('settings.reminder.later')}
      </button>
    </aside>
  );
}
