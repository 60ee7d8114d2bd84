import { createRoot } from 'react-dom/client';
import { Start } from './page/start.js';
import { applyTheme, storedTheme } from './page/theme.js';
import './styles/page.css';

applyTheme(storedTheme());
createRoot(document.getElementById('page') as HTMLElement).render(<Start />);
