import { type UseSessions, useSessions } from '@sibyl/client/react';
import { type ComponentProps, lazy, Suspense, useCallback, useEffect, useState } from 'react';
import { flushSync } from 'react-dom';
import { PageActions } from '../actions/page-actions.js';
import { useOnline } from '../chat/unsent-view.js';
import { Welcome } from '../chat/welcome.js';
import { t } from '../i18n/i18n.js';
import { BackupReminder } from '../settings/identity-status.js';
import { screens } from '../settings/screens.js';
import { ErrorBoundary, LoadFailure, reload } from '../ui/error-boundary.js';
import { Icon } from '../ui/icon.js';
import { showToast, Toasts } from '../ui/toasts.js';
import { useGlobalKeys } from './commands.js';
import { Head, SidebarContext } from './head.js';
import { SessionChangesContext, useCreateSessionChanges, usePage } from './page-context.js';
import { go, type Route, useRoute } from './router.js';
import { nameSession, useShownSessions } from './session-marks.js';
import { Sidebar } from './sidebar.js';

const findScreen = (id: string) => screens.find((each) => each.id === id);

// Loaded when the user opens them.
const SettingsView = lazy(async () => ({
  default: (await import('../settings/settings-screen.js')).SettingsView,
}));
let conversation: typeof import('../chat/conversation.js') | undefined;
const loadConversation = async () => {
  conversation = await import('../chat/conversation.js');
  return { default: conversation.Conversation };
};
const LazyConversation = lazy(loadConversation);
/** Shorter than anyone types; the page answers to input in between. */
const PRELOAD_MS = 200;
let palette: typeof import('./palette.js') | undefined;
const loadPalette = async () => {
  palette = await import('./palette.js');
  return palette;
};
const LazyPalette = lazy(async () => ({ default: (await loadPalette()).Palette }));
const Shortcuts = lazy(async () => ({ default: (await loadPalette()).Shortcuts }));

/** The sidebar and the screen that the address names. */
export function Page() {
  const route = useRoute();
  usePreload();
  const changes = useCreateSessionChanges();
  const newest = useSessions({ pageSize: 30, onChange: changes.notify });
  const { isDrawerOpen, setDrawerOpen, isHidden, toggle, open } = useSidebar(route);
  const sessionId = route.name === 'conversation' ? route.sessionId : undefined;
  const sessions = { ...newest, sessions: useShownSessions(newest, sessionId, changes) };
  // A screen does not inherit the error of the one before.
  const screenKey = route.name === 'settings' ? route.screen : sessionId;
  const session = sessions.sessions.find((each) => each.sessionId === sessionId);
  const title = session && nameSession(session);
  useDocumentTitle(route, title);
  const overlays = useOverlays(sessions, toggle);

  return (
    <SidebarContext value={open}>
      <SessionChangesContext value={changes}>
        <div className="frame">
          <div className={isHidden ? 'app is-solo' : 'app'}>
            <PageActions />
            {isDrawerOpen && (
              // biome-ignore lint/a11y/useKeyWithClickEvents lint/a11y/noStaticElementInteractions: Escape and the button in the drawer close it too.
              <div className="scrim" onClick={() => setDrawerOpen(false)} />
            )}
            <Sidebar
              sessions={sessions}
              current={sessionId}
              isOpen={isDrawerOpen}
              onClose={() => setDrawerOpen(false)}
              onSearch={overlays.openSearch}
              onHelp={overlays.openHelp}
            />
            <main className="main" inert={isDrawerOpen}>
              <BackupReminder />
              <OfflineBanner />
              <ErrorBoundary key={screenKey} fallback={<FailedScreen title={title} />}>
                <Screen route={route} title={title} isPaused={session?.turnStatus === 'paused'} />
              </ErrorBoundary>
              <Toasts />
            </main>
          </div>
          {overlays.element}
        </div>
      </SessionChangesContext>
    </SidebarContext>
  );
}

/** Once the page is visible: the first message must not wait, even without a connection. */
function usePreload(): void {
  useEffect(() => {
    const load = async () => {
      const [{ keepFocus }] = await Promise.all([
        import('../ui/keep-focus.js'),
        loadConversation(),
      ]);
      keepFocus();
      // What is typed right after the shortcut would be lost, or stand in the message.
      await loadPalette();
    };
    const timer = setTimeout(() => void load().catch(() => undefined), PRELOAD_MS);
    return () => clearTimeout(timer);
  }, []);
}

/** On every screen: what fails without a connection, and that nothing is lost. */
function OfflineBanner() {
  if (useOnline()) return null;
  return (
    <div className="banner is-warning" role="status">
      <Icon name="off" />
      <span className="grow">
        <b>{t('chat.offline')}</b> {t('chat.offline.text')}
      </span>
    </div>
  );
}

const isNarrow = () => matchMedia('(max-width: 52rem)').matches;

/** Where the window is narrow, the sidebar is a drawer; elsewhere it can be hidden. */
function useSidebar(route: Route) {
  const [isDrawerOpen, setDrawerOpen] = useState(false);
  const [isHidden, setHidden] = useState(false);
  // A choice in the drawer closes it.
  useEffect(() => setDrawerOpen(false), [route]);
  const hide = useCallback((hidden: boolean) => {
    const { activeElement: focused } = document;
    const isFocusHidden = focused?.closest(hidden ? '.side' : '.open-side');
    flushSync(() => setHidden(hidden));
    if (isFocusHidden)
      document.querySelector<HTMLElement>(hidden ? '.open-side' : '.side-link')?.focus();
  }, []);
  const toggle = () => {
    if (isNarrow()) setDrawerOpen((isOpen) => !isOpen);
    else hide(!isHidden);
  };
  const open = useCallback(() => (isNarrow() ? setDrawerOpen(true) : hide(false)), [hide]);
  return { isDrawerOpen, setDrawerOpen, isHidden, toggle, open };
}

/** The search and the help sheet, and the keys that open them. */
function useOverlays({ sessions }: UseSessions, onToggleSidebar: () => void) {
  const [open, setOpen] = useState<'search' | 'help'>();
  // A dialog of the screen stays: what was typed there would be lost, or hidden by another dialog.
  const ifFree = (action: () => void) => () => {
    if (open || !document.querySelector('dialog[open]')) action();
  };
  const openSearch = () => setOpen((now) => (now === 'search' ? undefined : 'search'));
  const openHelp = () => setOpen('help');
  const close = () => setOpen(undefined);
  useGlobalKeys({
    search: ifFree(openSearch),
    newConversation: ifFree(() => {
      close();
      go({ name: 'welcome' });
    }),
    toggleSidebar: ifFree(() => {
      close();
      onToggleSidebar();
    }),
    help: ifFree(openHelp),
  });
  const element = (
    <ErrorBoundary key={open} fallback={<FailedOverlay onClose={close} />}>
      <Suspense>
        {open === 'search' && (
          <ShownPalette
            onHelp={openHelp}
            onToggleSidebar={onToggleSidebar}
            recent={sessions}
            onClose={close}
          />
        )}
        {open === 'help' && <Shortcuts onClose={close} />}
      </Suspense>
    </ErrorBoundary>
  );
  return { element, openSearch, openHelp };
}

/** Says so beside the screen, which still works. */
function FailedOverlay({ onClose }: { readonly onClose: () => void }) {
  useEffect(() => {
    showToast({
      text: t('chat.screenFailed'),
      action: { label: t('chat.tryAgain'), run: reload },
    });
    onClose();
  });
  return null;
}

/** The sidebar stays within reach. */
const FailedScreen = ({ title = '' }: { readonly title: string | undefined }) => (
  <>
    <Head title={title} />
    <div className="page">
      <LoadFailure />
    </div>
  </>
);

interface ScreenProps {
  readonly route: Route;
  readonly title: string | undefined;
  /** Whether the turn of the conversation waits for an answer. */
  readonly isPaused: boolean;
}

function Screen({ route, title, isPaused }: ScreenProps) {
  switch (route.name) {
    case 'welcome':
      return <Welcome />;
    case 'conversation':
      return (
        <Suspense fallback={<Head title={title ?? ''} />}>
          <ShownConversation
            key={route.sessionId}
            sessionId={route.sessionId}
            title={title}
            isPaused={isPaused}
            messageId={route.messageId}
          />
        </Suspense>
      );
    case 'settings':
      return <SettingsPage id={route.screen} />;
  }
}

/** What is loaded already is shown at once: a lazy component is always blank first. */
function ShownConversation(props: ComponentProps<typeof LazyConversation>) {
  const [View] = useState(() => conversation?.Conversation ?? LazyConversation);
  return <View {...props} />;
}

function ShownPalette(props: ComponentProps<typeof LazyPalette>) {
  const [View] = useState(() => palette?.Palette ?? LazyPalette);
  return <View {...props} />;
}

function SettingsPage({ id }: { readonly id: string }) {
  const screen = findScreen(id);
  return (
    <>
      <Head title={screen ? t(screen.label) : ''} isPage />
      <div className="scroll">
        <div className="page">
          <Suspense>
            <SettingsView id={id} />
          </Suspense>
        </div>
      </div>
    </>
  );
}

/** Names the open conversation in the window's title. */
function useDocumentTitle(route: Route, title: string | undefined): void {
  const { card } = usePage();
  const screen = route.name === 'settings' ? findScreen(route.screen) : undefined;
  const label = screen ? t(screen.label) : title;
  useEffect(() => {
    document.title = label ? `${label} · ${card.name}` : card.name;
  }, [label, card.name]);
}
