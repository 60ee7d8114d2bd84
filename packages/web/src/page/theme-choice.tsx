import { chooseTheme, type Theme, themes, useTheme } from './theme.js';

const labels: Record<Theme, string> = { system: 'System', light: 'Light', dark: 'Dark' };

export function ThemeChoice() {
  const theme = useTheme();
  return (
    <fieldset className="choice" aria-label="Colours">
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
