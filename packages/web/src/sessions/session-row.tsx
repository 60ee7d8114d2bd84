import type { Session } from '@sibyl/client';
import { type FormEvent, useState } from 'react';
import { IconButton } from '../page/icon-button.js';

interface SessionRowProps {
  readonly session: Session;
  readonly isCurrent: boolean;
  readonly onShow: () => void;
  readonly onRename: (title: string) => Promise<void>;
  readonly onRemove: () => Promise<void>;
}

type Mode = 'shown' | 'renamed' | 'removed';

/** One session: shown, being renamed, or about to be deleted. */
export function SessionRow(props: SessionRowProps) {
  const [mode, setMode] = useState<Mode>('shown');
  const back = () => setMode('shown');
  switch (mode) {
    case 'renamed':
      return <RenameRow {...props} onDone={back} />;
    case 'removed':
      return <RemoveRow {...props} onDone={back} />;
    case 'shown':
      return <ShownRow {...props} onMode={setMode} />;
  }
}

function ShownRow({
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
      <IconButton icon="pencil" label={`Rename ${title}`} onClick={() => onMode('renamed')} />
      <IconButton icon="trash" label={`Delete ${title}`} onClick={() => onMode('removed')} />
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
          // biome-ignore lint/a11y/noAutofocus: the user has just asked to write here.
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
      <span>Delete “{session.title}” for good?</span>
      <button type="button" className="danger" onClick={onRemove}>
        Delete
      </button>
      <button type="button" onClick={onDone}>
        Keep
      </button>
    </li>
  );
}
