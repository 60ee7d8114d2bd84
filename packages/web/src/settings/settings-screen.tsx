import { type ComponentType, useEffect, useState } from 'react';
import { loadArea, t } from '../i18n/i18n.js';
import { usePage } from '../page/page-context.js';
import { toHash } from '../page/router.js';
import { LoadFailure } from '../ui/error-boundary.js';
import { type SettingsScreen, screens } from './screens.js';

const findScreen = (id: string): SettingsScreen | undefined =>
  screens.find((each) => each.id === id);

/** Loads a settings screen and its texts, then shows it. */
export function SettingsView({ id }: { readonly id: string }) {
  const [loaded, setLoaded] = useState<{ readonly id: string; readonly Screen: ComponentType }>();
  const [hasFailed, setFailed] = useState(false);
  const page = usePage();
  const screen = findScreen(id);
  const isKnown = screen !== undefined && (screen.isAvailable?.(page) ?? true);
  useEffect(() => {
    let isCurrent = true;
    const load = async () => {
      const [Screen] = await Promise.all([findScreen(id)?.load(), loadArea('settings')]);
      if (isCurrent && Screen) setLoaded({ id, Screen });
    };
    setFailed(false);
    load().catch(() => isCurrent && setFailed(true));
    return () => {
      isCurrent = false;
    };
  }, [id]);
  if (hasFailed) return <LoadFailure />;
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
