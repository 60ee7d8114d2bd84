import { useEffect, useState } from 'react';
import { type TextKey, t } from '../i18n/i18n.js';
import { readText, storeText } from './stored-value.js';

const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

const KEY = 'sibyl-theme';
const CHANGED = 'sibyl-theme-changed';

export function readTheme(): Theme {
  const stored = readText(KEY);
  return themes.find((theme) => theme === stored) ?? 'system';
}

export function applyTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
}

/** Follows the system's contrast setting. */
export function followContrast(): void {
  const query = matchMedia('(prefers-contrast: more)');
  const apply = () => {
    document.documentElement.dataset.contrast = query.matches ? 'more' : 'normal';
  };
  query.addEventListener('change', apply);
  apply();
}

/** Applies and stores a theme. */
export function chooseTheme(theme: Theme): void {
  storeText(KEY, theme);
  applyTheme(theme);
  window.dispatchEvent(new Event(CHANGED));
}

/** The current theme; updates when the agent changes it. */
function useTheme(): Theme {
  const [theme, setTheme] = useState(readTheme);
  useEffect(() => {
    const read = () => setTheme(readTheme());
    window.addEventListener(CHANGED, read);
    return () => window.removeEventListener(CHANGED, read);
  }, []);
  return theme;
}

const labels = {
  system: 'chat.theme.system',
  light: 'chat.theme.light',
  dark: 'chat.theme.dark',
} as const satisfies Record<Theme, TextKey>;

export function ThemeChoice() {
  const theme = useTheme();
  return (
    <div className="pop-item">
      <span className="grow">{t('chat.theme')}</span>
      <fieldset className="seg">
        <legend className="vh">{t('chat.theme')}</legend>
        {themes.map((each) => (
          <label key={each}>
            <input
              type="radio"
              name="theme"
              checked={theme === each}
              onChange={() => chooseTheme(each)}
            />
            {t(labels[each])}
          </label>
        ))}
      </fieldset>
    </div>
  );
}
