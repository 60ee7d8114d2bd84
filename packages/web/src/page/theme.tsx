import { useEffect, useState } from 'react';

const themes = ['system', 'light', 'dark'] as const;
export type Theme = (typeof themes)[number];

const KEY = 'sibyl-theme';
const CHANGED = 'sibyl-theme-changed';

export function readTheme(): Theme {
  const stored = localStorage.getItem(KEY);
  return themes.find((theme) => theme === stored) ?? 'system';
}

export function applyTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
}

/** Applies and stores a theme. */
export function chooseTheme(theme: Theme): void {
  localStorage.setItem(KEY, theme);
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

const labels: Record<Theme, string> = { system: 'System', light: 'Light', dark: 'Dark' };

export function ThemeChoice() {
  const theme = useTheme();
  return (
    <fieldset className="choice" aria-label="Theme">
      {themes.map((each) => (
        <label key={each}>
          <input
            type="radio"
            name="theme"
            checked={theme === each}
            onChange={() => chooseTheme(each)}
          />
          <span>{labels[each]}</span>
        </label>
      ))}
    </fieldset>
  );
}
