import { useSessions } from '@sibyl/client/react';
import { useEffect, useMemo, useState } from 'react';
import { PageActions } from '../actions/page-actions.js';
import { Conversation } from '../chat/conversation.js';
import { Welcome } from '../chat/welcome.js';
import { t } from '../i18n/i18n.js';
import { findScreen, SettingsView } from '../settings/settings-screen.js';
import { Toasts } from '../ui/toasts.js';
import { Head, SidebarContext } from './head.js';
import { usePage } from './page-context.js';
import { type Route, useRoute } from './router.js';
import { Sidebar } from './sidebar.js';

/** The sidebar and the screen that the address names. */
export function Page() {
  const route = useRoute();
  const sessions = useSessions({ pageSize: 30 });
  const [isDrawerOpen, setDrawerOpen] = useState(false);
  // A choice in the drawer closes it.
  useEffect(() => setDrawerOpen(false), [route]);
  const sessionId = route.name === 'conversation' ? route.sessionId : undefined;
  const title = sessions.sessions.find((each) => each.sessionId === sessionId)?.title;
  useDocumentTitle(route, title);
  const openSidebar = useMemo(() => () => setDrawerOpen(true), []);

  return (
    <SidebarContext value={openSidebar}>
      <div className="frame">
        <div className="app">
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
          />
          <main className="main" inert={isDrawerOpen}>
            <Screen route={route} title={title} />
            <Toasts />
          </main>
        </div>
      </div>
    </SidebarContext>
  );
}

function Screen({ route, title }: { readonly route: Route; readonly title: string | undefined }) {
  switch (route.name) {
    case 'welcome':
      return <Welcome />;
    case 'conversation':
      return <Conversation key={route.sessionId} sessionId={route.sessionId} title={title} />;
    case 'settings':
      return <SettingsPage id={route.screen} />;
  }
}

function SettingsPage({ id }: { readonly id: string }) {
  const screen = findScreen(id);
  return (
    <>
      <Head title={screen ? t(screen.label) : ''} isPage />
      <div className="scroll">
        <div className="page">
          <SettingsView id={id} />
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
