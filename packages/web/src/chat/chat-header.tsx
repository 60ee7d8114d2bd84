import type { ConnectionState } from '@sibyl/client';
import { IconButton } from '../page/icon-button.js';
import type { PanelName } from '../panels/panels.js';
import { ModelChoice } from './model-choice.js';

/** What every view of the middle of the page can do with the rest of it. */
export interface ChatFrame {
  readonly onOpenSidebar: () => void;
  readonly onPanel: (panel: PanelName) => void;
}

interface ChatHeaderProps extends ChatFrame {
  readonly title: string;
  readonly connection?: ConnectionState;
  /** Whether there is a session whose events can be looked at. */
  readonly hasEvents?: boolean;
}

const states: Record<ConnectionState, string> = {
  connected: 'Connected',
  connecting: 'Connecting…',
  disconnected: 'Not connected',
};

export function ChatHeader({
  title,
  connection,
  hasEvents,
  onOpenSidebar,
  onPanel,
}: ChatHeaderProps) {
  return (
    <header className="chat-header">
      <IconButton
        className="only-narrow"
        icon="menu"
        label="Show conversations"
        onClick={onOpenSidebar}
      />
      <h2>{title}</h2>
      {connection && (
        <span className="connection" data-state={connection} role="status">
          {states[connection]}
        </span>
      )}
      <ModelChoice />
      {hasEvents && (
        <IconButton icon="pulse" label="Live events" onClick={() => onPanel('events')} />
      )}
    </header>
  );
}
