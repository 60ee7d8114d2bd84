import { type UseSessions, useApprovals } from '@sibyl/client/react';
import { type KeyboardEvent, useEffect, useRef } from 'react';
import { useEndedForms } from '../chat/drafts.js';
import { t } from '../i18n/i18n.js';
import { useIdentityStatus } from '../settings/identity-status.js';
import { screens } from '../settings/screens.js';
import { Icon, IconButton } from '../ui/icon.js';
import { Menu } from '../ui/menu.js';
import { keyNames } from './commands.js';
import { useDrawerFocus } from './head.js';
import { type PageValues, usePage } from './page-context.js';
import { toHash, useRoute } from './router.js';
import { SessionList } from './session-list.js';
import { ThemeChoice } from './theme.js';

interface SidebarProps {
  readonly sessions: UseSessions;
  readonly current: string | undefined;
  /** Whether the drawer is open, where the window is narrow. */
  readonly isOpen: boolean;
  readonly onClose: () => void;
  readonly onSearch: () => void;
  readonly onHelp: () => void;
}

/** The conversations and the links to the other screens. */
export function Sidebar(props: SidebarProps) {
  const { sessions, current, isOpen, onClose, onSearch, onHelp } = props;
  const page = usePage();
  const waiting = useWaitingCount(sessions.sessions);
  useEndedForms(sessions);
  const side = useRef<HTMLElement>(null);
  useDrawerFocus(side, isOpen);
  const onKeyDown = ({ key }: KeyboardEvent) => isOpen && key === 'Escape' && onClose();
  return (
    <nav
      ref={side}
      className={isOpen ? 'side is-open' : 'side'}
      aria-label={t('chat.sidebar.label')}
      onKeyDown={onKeyDown}
    >
      <div className="side-top">
        <span className="logo">
          <Icon name="eye" />
        </span>
        <b className="grow clip">{page.card.name}</b>
        <IconButton
          icon="search"
          label={t('chat.search.keys', { keys: keyNames.search })}
          onClick={onSearch}
        />
        {isOpen && <IconButton icon="x" label={t('chat.sidebar.close')} onClick={onClose} />}
      </div>
      <a className="side-link" href={toHash({ name: 'welcome' })}>
        <Icon name="plus" />
        <span className="grow">{t('chat.newConversation')}</span>
      </a>
      <SideLinks page={page} waiting={waiting} />
      <SessionList sessions={sessions} current={current} />
      <Me page={page} onHelp={onHelp} />
    </nav>
  );
}

const findScreens = (place: 'sidebar' | 'menu', page: PageValues) =>
  screens.filter((screen) => screen.place === place && (screen.isAvailable?.(page) ?? true));

interface SideLinksProps {
  readonly page: PageValues;
  /** How many tool calls wait for the user. */
  readonly waiting: number;
}

function SideLinks({ page, waiting }: SideLinksProps) {
  const route = useRoute();
  const isCurrent = (id: string) => route.name === 'settings' && route.screen === id;
  return findScreens('sidebar', page).map(({ id, label, icon }) => (
    <a
      key={id}
      className="side-link"
      href={toHash({ name: 'settings', screen: id })}
      aria-current={isCurrent(id) ? 'page' : undefined}
    >
      <Icon name={icon} />
      <span className="grow">{t(label)}</span>
      {id === 'approvals' && waiting > 0 && (
        <span
          className="count"
          role="img"
          aria-label={t('chat.approvals.waiting', { count: waiting })}
        >
          {waiting}
        </span>
      )}
    </a>
  ));
}

/** How many tool calls wait for the user; read again whenever a turn has ended. */
function useWaitingCount(sessions: UseSessions['sessions']): number {
  const { approvals, refresh } = useApprovals();
  const isFirst = useRef(true);
  useEffect(() => {
    // The hook itself loads them first.
    const mayWait = sessions.length + approvals.length > 0;
    if (!isFirst.current && mayWait) void refresh();
    isFirst.current = false;
  }, [sessions, refresh]);
  return approvals.length;
}

/** The user, and the menu with the other screens. */
function Me({ page, onHelp }: { readonly page: PageValues; readonly onHelp: () => void }) {
  const { name, needsBackup } = useIdentityStatus();
  const links = findScreens('menu', page).map(({ id, label, icon }) => ({
    label: t(label),
    icon,
    href: toHash({ name: 'settings', screen: id }),
  }));
  const gateway = page.card.gateway;
  return (
    <Menu
      className="me"
      hasText
      label={t('chat.menu.you', { name })}
      groups={[
        links,
        [{ label: t('chat.shortcuts'), icon: 'words', keys: keyNames.help, run: onHelp }],
        gateway ? [{ label: t('chat.nav.gateway'), icon: 'pulse', href: `${gateway}/docs` }] : [],
      ]}
      footer={
        <>
          <hr />
          <ThemeChoice />
        </>
      }
    >
      <span className="avatar" aria-hidden="true">
        {[...name][0]?.toUpperCase()}
      </span>
      <span className="grow clip">
        <span className="vh">{t('chat.menu.you', { name })}</span>
        <span className="strong" aria-hidden="true">
          {name}
        </span>
        {needsBackup && (
          <>
            <br />
            <span className="small is-warning">{t('chat.key.noBackup')}</span>
          </>
        )}
      </span>
      <Icon name="more" />
    </Menu>
  );
}
