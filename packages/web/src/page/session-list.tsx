import type { Session } from '@sibyl/client';
import { type UseSessions, useOracle } from '@sibyl/client/react';
import { type FormEvent, useEffect, useRef, useState } from 'react';
import { explainError } from '../i18n/explain-error.js';
import { findMidnight, formatDateTime } from '../i18n/format.js';
import { type TextKey, t } from '../i18n/i18n.js';
import { Icon, IconButton } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { showToast } from '../ui/toasts.js';
import { isComposing, keyNames } from './commands.js';
import { usePage } from './page-context.js';
import { go, toHash } from './router.js';
import {
  deleteLater,
  keepSession,
  nameSession,
  type SessionMark,
  useDeletions,
  usePins,
  useSessionMarks,
} from './session-marks.js';

interface SessionListProps {
  readonly sessions: UseSessions;
  readonly current: string | undefined;
}

/** The user's sessions, newest first; loads more when the end becomes visible. */
export function SessionList({ sessions, current }: SessionListProps) {
  const { pins, togglePin } = usePins();
  const { did } = usePage().signer;
  const deleted = useDeletions(did, sessions.remove);
  const shown = sessions.sessions.filter(({ sessionId }) => !deleted.has(sessionId));
  const isLoaded = !sessions.isLoading && !sessions.error;
  const findMark = useSessionMarks(sessions.sessions, current);
  const [error, setError] = useState<string>();
  const findRename = useRename();
  const client = useOracle();
  const save = async (session: Session) => {
    const { exportSession } = await import('../chat/save-file.js');
    await exportSession(client, session);
  };
  const attempt = (work: Promise<void>) => {
    setError(undefined);
    return work.catch((cause: Error) => setError(explainError(cause)));
  };
  const remove = (session: Session) => {
    const { sessionId } = session;
    if (sessionId === current) go({ name: 'welcome' });
    deleteLater(did, sessionId);
    showToast({
      text: t('chat.deleted', { title: nameSession(session) }),
      action: { label: t('chat.undo'), run: () => keepSession(sessionId), keys: keyNames.undo },
    });
  };
  return (
    <div className="side-list">
      {groupSessions(shown, pins).map(({ label, items }: SessionGroup) => (
        <section key={label} aria-label={t(label)}>
          <p className="side-group">{t(label)}</p>
          <ul>
            {items.map((session) => (
              <SessionRow
                key={session.sessionId}
                session={session}
                isCurrent={session.sessionId === current}
                isPinned={pins.has(session.sessionId)}
                mark={findMark(session)}
                onPin={() => togglePin(session.sessionId)}
                {...findRename(session)}
                onRename={(title) => attempt(sessions.rename(session.sessionId, title))}
                onExport={() => attempt(save(session))}
                onRemove={() => remove(session)}
              />
            ))}
          </ul>
        </section>
      ))}
      <ListEnd sessions={sessions} />
      {isLoaded && shown.length === 0 && !sessions.hasMore && <NoConversations />}
      <Failures sessions={sessions} error={error} />
    </div>
  );
}

interface Rename {
  /** What the user has typed as the new title. */
  readonly newTitle: string | undefined;
  readonly onType: (title: string) => void;
  readonly onRenamed: () => void;
}

/** For the whole list, since a row moves to another group when its conversation is used. */
function useRename(): (session: Session) => Rename {
  const [typed, setTyped] = useState<{ readonly id: string; readonly title: string }>();
  return ({ sessionId: id }) => ({
    newTitle: typed?.id === id ? typed.title : undefined,
    onType: (title) => setTyped({ id, title }),
    // Meanwhile the user may have begun with another one.
    onRenamed: () => setTyped((now) => (now?.id === id ? undefined : now)),
  });
}

interface FailuresProps {
  readonly sessions: UseSessions;
  /** Of the last change of a session. */
  readonly error: string | undefined;
}

function Failures({ sessions, error }: FailuresProps) {
  const text = error ?? (sessions.error && explainError(sessions.error));
  return (
    <>
      {text && (
        <p className="small is-fault" role="alert">
          {text}
        </p>
      )}
      {sessions.error && (
        <button type="button" className="btn btn-s" onClick={() => void sessions.refresh()}>
          {t('chat.tryAgain')}
        </button>
      )}
    </>
  );
}

const NoConversations = () => (
  <div className="empty">
    <p className="strong">{t('chat.noConversations')}</p>
    <p className="small">{t('chat.noConversations.hint')}</p>
  </div>
);

/** Loads more when it becomes visible. */
function ListEnd({ sessions }: { readonly sessions: UseSessions }) {
  const end = useRef<HTMLParagraphElement>(null);
  const { hasMore, isLoading, loadMore } = sessions;
  useEffect(() => {
    if (!end.current || !hasMore || isLoading) return;
    const watch = new IntersectionObserver((entries) => {
      // A busy browser reports several changes at once.
      if (entries.at(-1)?.isIntersecting) void loadMore();
    });
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [hasMore, isLoading, loadMore]);
  if (!hasMore) return null;
  return (
    <p ref={end} className="small quiet side-group">
      {t('chat.loading')}
    </p>
  );
}

interface SessionRowProps extends Rename {
  readonly session: Session;
  readonly isCurrent: boolean;
  readonly isPinned: boolean;
  readonly mark: SessionMark | undefined;
  readonly onPin: () => void;
  readonly onRename: (title: string) => Promise<void>;
  readonly onExport: () => void;
  readonly onRemove: () => void;
}

function SessionRow(props: SessionRowProps) {
  const { session, isCurrent, isPinned, mark, onPin, onExport, onRemove } = props;
  const startRename = () => props.onType(session.title);
  const { sessionId, lastUpdatedAt } = session;
  const title = nameSession(session);
  if (props.newTitle !== undefined) return <RenameRow {...props} newTitle={props.newTitle} />;
  return (
    <li className="conv" aria-current={isCurrent ? 'true' : undefined}>
      {isPinned && <Icon name="pin" />}
      <a
        className="clip"
        dir="auto"
        href={toHash({ name: 'conversation', sessionId })}
        aria-current={isCurrent ? 'page' : undefined}
        title={formatDateTime(lastUpdatedAt)}
        onKeyDown={({ key }) => key === 'F2' && startRename()}
      >
        {title}
      </a>
      {mark && <Mark mark={mark} />}
      <Menu
        label={t('chat.conversation.more', { title })}
        groups={[
          [
            { label: t(isPinned ? 'chat.unpin' : 'chat.pin'), icon: 'pin', run: onPin },
            { label: t('chat.rename'), icon: 'edit', keys: 'F2', run: startRename },
            { label: t('chat.export'), icon: 'save', run: onExport },
          ],
          [{ label: t('chat.delete'), icon: 'trash', isDanger: true, run: onRemove }],
        ]}
      >
        <Icon name="more" />
      </Menu>
    </li>
  );
}

function Mark({ mark }: { readonly mark: SessionMark }) {
  switch (mark) {
    case 'paused':
      return <span className="badge is-accent">{t('chat.needsYou')}</span>;
    case 'running':
      return <span className="spin xs" role="img" aria-label={t('chat.answering')} />;
    case 'unseen':
      return <span className="dot is-accent" role="img" aria-label={t('chat.unseen')} />;
  }
}

interface RenameRowProps extends SessionRowProps {
  readonly newTitle: string;
}

function RenameRow({ session, newTitle, onType, onRename, onRenamed }: RenameRowProps) {
  const save = async (event: FormEvent) => {
    event.preventDefault();
    const named = newTitle.trim();
    if (named && named !== session.title) await onRename(named);
    onRenamed();
  };
  return (
    <li>
      <form className="conv is-edit" onSubmit={save}>
        <input
          // biome-ignore lint/a11y/noAutofocus: the user just chose Rename.
          autoFocus
          className="input btn-s"
          aria-label={t('chat.newName')}
          dir="auto"
          maxLength={200}
          value={newTitle}
          onChange={({ target }) => onType(target.value)}
          onKeyDown={(event) => event.key === 'Escape' && !isComposing(event) && onRenamed()}
          onBlur={save}
        />
        <IconButton type="submit" icon="check" label={t('chat.saveName')} />
      </form>
    </li>
  );
}

interface SessionGroup {
  readonly label: TextKey;
  readonly items: readonly Session[];
}

const DAY_MS = 86_400_000;

/** Pinned sessions first, then by the day of their last change. */
function groupSessions(sessions: readonly Session[], pins: ReadonlySet<string>): SessionGroup[] {
  const midnight = findMidnight();
  const findLabel = ({ sessionId, lastUpdatedAt }: Session): TextKey => {
    if (pins.has(sessionId)) return 'chat.group.pinned';
    const at = Date.parse(lastUpdatedAt);
    if (at >= midnight) return 'chat.group.today';
    if (at >= midnight - DAY_MS) return 'chat.group.yesterday';
    return at >= midnight - 7 * DAY_MS ? 'chat.group.week' : 'chat.group.older';
  };
  const labeled = sessions.map((session) => ({ session, label: findLabel(session) }));
  return ORDER.flatMap((label) => {
    const items = labeled.filter((each) => each.label === label).map(({ session }) => session);
    return items.length > 0 ? [{ label, items }] : [];
  });
}

const ORDER = [
  'chat.group.pinned',
  'chat.group.today',
  'chat.group.yesterday',
  'chat.group.week',
  'chat.group.older',
] as const satisfies readonly TextKey[];
