import { type ComponentType, useEffect, useState } from 'react';
import { loadArea, t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { toHash } from '../page/router.js';
import { Icon } from '../ui/icon.js';
import { type SettingsScreen, screens } from './screens.js';

const findScreen = (id: string): SettingsScreen | undefined =>
  screens.find((each) => each.id === id);

/** Loads a settings screen and its texts, then shows it. */
export function SettingsView({ id }: { readonly id: string }) {
  const [loaded, setLoaded] = useState<{ readonly id: string; readonly Screen: ComponentType }>();
  const [error, setError] = useState<Error>();
  const [attempt, setAttempt] = useState(0);
  const page = usePage();
  const screen = findScreen(id);
  const isKnown = screen !== undefined && (screen.isAvailable?.(page) ?? true);
  useEffect(() => {
    let isCurrent = true;
    const load = async () => {
      const [Screen] = await Promise.all([findScreen(id)?.load(), loadArea('settings')]);
      if (isCurrent && Screen) setLoaded({ id, Screen });
    };
    setError(undefined);
    load().catch((cause: Error) => isCurrent && setError(cause));
    return () => {
      isCurrent = false;
    };
  }, [id, attempt]);
  if (error) {
    return (
      <div role="alert" className="notice is-fault">
        <Icon name="alert" />
        <div className="grow">
          <p>{t('chat.screenFailed')}</p>
          <div className="actions">
            <button type="button" className="btn btn-s" onClick={() => setAttempt(attempt + 1)}>
              {t('chat.tryAgain')}
            </button>
          </div>
        </div>
      </div>
    );
  }
  if (!isKnown) {
    return (
      <p>
        {t('chat.noScreen')} <a href={toHash({ name: 'welcome' })}>{t('chat.newConversation')}</a>
      </p>
    );
  }
  if (loaded?.id !== id) return <p aria-busy="true">{t('chat.loading')}</p>;
  return <loaded.Screen />;
}
