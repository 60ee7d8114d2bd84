import { createRoot } from 'react-dom/client';
import { applyLanguage, readLanguage } from './i18n/i18n.js';
import { Start } from './page/start.js';
import { applyTheme, followContrast, readTheme } from './page/theme.js';
import './styles/index.css';

applyTheme(readTheme());
followContrast();
const root = createRoot(document.getElementById('page') as HTMLElement);
applyLanguage(readLanguage()).then(
  () => root.render(<Start />),
  // Without its catalog, the page is in English.
  () => root.render(<Start />),
);
