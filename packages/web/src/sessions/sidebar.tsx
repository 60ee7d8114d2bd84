import type { UseSessions } from '@sibyl/client/react';
import { CopyButton } from '../page/copy-button.js';
import { Icon, type IconName } from '../page/icon.js';
import { IconButton } from '../page/icon-button.js';
import { usePage } from '../page/page-context.js';
import { ThemeChoice } from '../page/theme-choice.js';
import type { PanelName } from '../panels/panels.js';
import { SessionList } from './session-list.js';

interface SidebarProps {
  readonly sessions: UseSessions;
  readonly current: string | undefined;
  readonly onShow: (sessionId?: string) => void;
  readonly onPanel: (panel: PanelName) => void;
  readonly onClose: () => void;
}

const entries: readonly (readonly [PanelName, IconName, string])[] = [
  ['preferences', 'sliders', 'Preferences'],
  ['delegation', 'shield', 'Delegation'],
  ['key', 'key', 'Your key'],
];

export function Sidebar({ sessions, current, onShow, onPanel, onClose }: SidebarProps) {
  const { card, signer, settings } = usePage();
  return (
    <nav className="sidebar" aria-label="Conversations">
      <header>
        <img src="./icon.svg" alt="" width="28" height="28" />
        <h1>{card.name}</h1>
        <IconButton className="only-narrow" icon="close" label="Close the list" onClick={onClose} />
      </header>
      <button type="button" className="new-chat" onClick={() => onShow()}>
        <Icon name="plus" /> New conversation
      </button>
      <SessionList sessions={sessions} current={current} onShow={onShow} />
      <footer>
        <ul className="entries">
          {entries.map(([panel, icon, label]) => (
            <li key={panel}>
              <button type="button" onClick={() => onPanel(panel)}>
                <Icon name={icon} /> {label}
              </button>
            </li>
          ))}
          {settings.matrixBaseUrl && (
            <li>
              <button type="button" onClick={() => onPanel('matrix')}>
                <Icon name="clip" /> Matrix
              </button>
            </li>
          )}
          {card.gateway && (
            <li>
              <a href={`${card.gateway}/docs`} target="_blank" rel="noreferrer">
                <Icon name="pulse" /> Chain gateway
              </a>
            </li>
          )}
        </ul>
        <ThemeChoice />
        <p className="identity">
          <span title="Your DID: the key in this browser">{short(signer.did)}</span>
          <CopyButton text={signer.did} label="Copy your DID" />
        </p>
      </footer>
    </nav>
  );
}

const short = (did: string) => (did.length > 24 ? `${did.slice(0, 14)}…${did.slice(-6)}` : did);
