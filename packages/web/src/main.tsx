import { createRoot } from 'react-dom/client';
import { Start } from './page/start.js';
import { applyTheme, readTheme } from './page/theme.js';
import './styles/page.css';

applyTheme(readTheme());
createRoot(document.getElementById('page') as HTMLElement).render(<Start />);
