import type { Session } from '@sibyl/client';
import type { UseSessions } from '@sibyl/client/react';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import type { PanelName } from '../panels/panels.js';
import { CopyButton, Icon, IconButton, type IconName } from './icon-button.js';
import { usePage } from './page-context.js';
import { ThemeChoice } from './theme.js';

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
        <IconButton className="only-narrow" icon="close" label="Close list" onClick={onClose} />
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
          <span title="Your DID, derived from the key in this browser">{shorten(signer.did)}</span>
          <CopyButton text={signer.did} label="Copy your DID" />
        </p>
      </footer>
    </nav>
  );
}

const shorten = (did: string) => (did.length > 24 ? `${did.slice(0, 14)}…${did.slice(-6)}` : did);

interface SessionListProps {
  readonly sessions: UseSessions;
  readonly current: string | undefined;
  readonly onShow: (sessionId?: string) => void;
}

/** The user's sessions, newest first; loads more when the end becomes visible. */
function SessionList({ sessions, current, onShow }: SessionListProps) {
  const end = useRef<HTMLLIElement>(null);
  const { hasMore, isLoading, loadMore } = sessions;
  useEffect(() => {
    if (!end.current || !hasMore || isLoading) return;
    const watch = new IntersectionObserver(([entry]) => {
      if (entry?.isIntersecting) void loadMore();
    });
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [hasMore, isLoading, loadMore]);

  const [error, setError] = useState<string>();
  const attempt = (work: Promise<void>) => {
    setError(undefined);
    return work.catch(({ message }: Error) => setError(message));
  };
  const remove = async (sessionId: string) => {
    await sessions.remove(sessionId);
    if (sessionId === current) onShow();
  };
  return (
    <ul className="sessions">
      {sessions.sessions.map((session) => (
        <SessionRow
          key={session.sessionId}
          session={session}
          isCurrent={session.sessionId === current}
          onShow={() => onShow(session.sessionId)}
          onRename={(title) => attempt(sessions.rename(session.sessionId, title))}
          onRemove={() => attempt(remove(session.sessionId))}
        />
      ))}
      {hasMore && (
        <li ref={end} className="quiet">
          Loading…
        </li>
      )}
      {!isLoading && sessions.total === 0 && <li className="quiet">No conversations yet</li>}
      {(error ?? sessions.error) && (
        <li className="error" role="alert">
          {error ?? sessions.error?.message}
        </li>
      )}
    </ul>
  );
}

interface SessionRowProps {
  readonly session: Session;
  readonly isCurrent: boolean;
  readonly onShow: () => void;
  readonly onRename: (title: string) => Promise<void>;
  readonly onRemove: () => Promise<void>;
}

type Mode = 'view' | 'rename' | 'delete';

function SessionRow(props: SessionRowProps) {
  const [mode, setMode] = useState<Mode>('view');
  const back = () => setMode('view');
  switch (mode) {
    case 'rename':
      return <RenameRow {...props} onDone={back} />;
    case 'delete':
      return <RemoveRow {...props} onDone={back} />;
    case 'view':
      return <ViewRow {...props} onMode={setMode} />;
  }
}

function ViewRow({
  session,
  isCurrent,
  onShow,
  onMode,
}: SessionRowProps & { onMode(mode: Mode): void }) {
  const { title, lastUpdatedAt } = session;
  return (
    <li className="session" data-current={isCurrent || undefined}>
      <button
        type="button"
        className="title"
        aria-current={isCurrent ? 'page' : undefined}
        title={new Date(lastUpdatedAt).toLocaleString()}
        onClick={onShow}
      >
        {title}
      </button>
      <IconButton icon="pencil" label={`Rename ${title}`} onClick={() => onMode('rename')} />
      <IconButton icon="trash" label={`Delete ${title}`} onClick={() => onMode('delete')} />
    </li>
  );
}

function RenameRow({ session, onRename, onDone }: SessionRowProps & { onDone(): void }) {
  const [title, setTitle] = useState(session.title);
  const save = async (event: FormEvent) => {
    event.preventDefault();
    const named = title.trim();
    if (named && named !== session.title) await onRename(named);
    onDone();
  };
  return (
    <li className="session">
      <form onSubmit={save}>
        <input
          // biome-ignore lint/a11y/noAutofocus: the user just clicked Rename.
          autoFocus
          aria-label="New title"
          maxLength={200}
          value={title}
          onChange={({ target }) => setTitle(target.value)}
          onKeyDown={({ key }) => key === 'Escape' && onDone()}
          onBlur={save}
        />
      </form>
    </li>
  );
}

function RemoveRow({ session, onRemove, onDone }: SessionRowProps & { onDone(): void }) {
  return (
    <li className="session confirm">
      <span>Delete “{session.title}”? This cannot be undone.</span>
      <button type="button" className="danger" onClick={onRemove}>
        Delete
      </button>
      <button type="button" onClick={onDone}>
        Cancel
      </button>
    </li>
  );
}
