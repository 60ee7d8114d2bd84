import { type TextKey, t } from '../i18n/i18n.js';
import { readText, storeText, useStored, watchTexts } from './stored-value.js';

const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

const KEY = 'sibyl-theme';

function readTheme(): Theme {
  const stored = readText(KEY);
  return themes.find((theme) => theme === stored) ?? 'system';
}

/** Applies the theme that the user has chosen, also in another tab. */
export function followTheme(): void {
  const apply = () => {
    document.documentElement.dataset.theme = readTheme();
  };
  watchTexts(apply);
  apply();
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

export const chooseTheme = (theme: Theme): void => storeText(KEY, theme);

const labels = {
  system: 'chat.theme.system',
  light: 'chat.theme.light',
  dark: 'chat.theme.dark',
} as const satisfies Record<Theme, TextKey>;

export function ThemeChoice() {
  const theme = useStored(readTheme);
  return (
    <div className="pop-item">
      <span className="grow">{t('chat.theme')}</span>
      <fieldset className="seg">
        <legend className="vh">{t('chat.theme')}</legend>
        {themes.map((each) => (
          <label key={each}>
            <input
              type="radio"
              role="menuitemradio"
              aria-checked={theme === each}
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
