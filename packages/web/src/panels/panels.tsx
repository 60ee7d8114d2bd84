import { useEffect, useRef } from 'react';
import { IconButton } from '../page/icon-button.js';
import { DelegationPanel } from './delegation-panel.js';
import { EventsPanel } from './events-panel.js';
import { KeyPanel } from './key-panel.js';
import { MatrixPanel } from './matrix-panel.js';
import { PreferencesPanel } from './preferences-panel.js';

const titles = {
  preferences: 'Preferences',
  delegation: 'Delegation',
  key: 'Your key',
  matrix: 'Matrix',
  events: 'Live events',
} as const;

export type PanelName = keyof typeof titles;

interface PanelsProps {
  readonly name: PanelName | undefined;
  readonly sessionId: string | undefined;
  readonly onClose: () => void;
}

/** The open panel, as a dialog. */
export function Panels({ name, sessionId, onClose }: PanelsProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (name) dialog.current?.showModal();
    else dialog.current?.close();
  }, [name]);
  return (
    <dialog ref={dialog} className="panel" aria-labelledby="panel-title" onClose={onClose}>
      {name && (
        <>
          <header>
            <h2 id="panel-title">{titles[name]}</h2>
            <IconButton icon="close" label="Close" onClick={onClose} />
          </header>
          <PanelBody name={name} sessionId={sessionId} />
        </>
      )}
    </dialog>
  );
}

function PanelBody({ name, sessionId }: { name: PanelName; sessionId: string | undefined }) {
  switch (name) {
    case 'preferences':
      return <PreferencesPanel />;
    case 'delegation':
      return <DelegationPanel />;
    case 'key':
      return <KeyPanel />;
    case 'matrix':
      return <MatrixPanel />;
    case 'events':
      return <EventsPanel sessionId={sessionId} />;
  }
}
