import type { ConnectionState, ModelList } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { IconButton } from '../page/icon-button.js';
import type { PanelName } from '../panels/panels.js';

/** Lets a view open the sidebar and the panels. */
export interface ChatFrame {
  readonly onOpenSidebar: () => void;
  readonly onPanel: (panel: PanelName) => void;
}

interface ChatHeaderProps extends ChatFrame {
  readonly title: string;
  readonly connection?: ConnectionState;
  /** Whether there is a session with live events. */
  readonly hasEvents?: boolean;
}

const connectionLabels: Record<ConnectionState, string> = {
  connected: 'Connected',
  connecting: 'Connecting…',
  disconnected: 'Disconnected',
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
          {connectionLabels[connection]}
        </span>
      )}
      <ModelChoice />
      {hasEvents && (
        <IconButton icon="pulse" label="Live events" onClick={() => onPanel('events')} />
      )}
    </header>
  );
}

/** Selects the model; hidden if the oracle lists none. */
function ModelChoice() {
  const client = useOracle();
  const [list, setList] = useState<ModelList>();
  const [model, setModel] = useState(readChosenModel);
  useEffect(() => {
    client.models.list().then(setList, () => undefined);
  }, [client]);
  if (!list || list.models.length === 0) return null;
  const isKnown = list.models.some(({ id }) => id === model);
  const choose = (id: string) => {
    storeChosenModel(id === list.default ? undefined : id);
    setModel(id);
  };
  return (
    <select
      className="model"
      aria-label="Model"
      value={isKnown ? model : list.default}
      onChange={({ target }) => choose(target.value)}
    >
      {list.models.map(({ id, label }) => (
        <option key={id} value={id}>
          {label}
        </option>
      ))}
    </select>
  );
}

const KEY = 'sibyl-model';

/** Undefined means the oracle's default model. */
export const readChosenModel = (): string | undefined => localStorage.getItem(KEY) ?? undefined;

function storeChosenModel(id: string | undefined): void {
  if (id === undefined) localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, id);
}
