import type { MessageToSend } from '@sibyl/client';
import { useSessions } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { PageActions } from '../actions/page-actions.js';
import { Conversation } from '../chat/conversation.js';
import { Welcome } from '../chat/welcome.js';
import { type PanelName, Panels } from '../panels/panels.js';
import { Sidebar } from './sidebar.js';

/** The first message of a new session, not sent yet. */
interface Opening {
  readonly sessionId: string;
  readonly message: MessageToSend;
}

/** The sidebar, the conversation, and the open panel. */
export function Page() {
  const [sessionId, go] = useSessionId();
  const sessions = useSessions({ pageSize: 30 });
  const [opening, setOpening] = useState<Opening>();
  const [panel, setPanel] = useState<PanelName>();
  const [isSidebarOpen, setSidebarOpen] = useState(false);

  const show = (next?: string) => {
    setSidebarOpen(false);
    go(next);
  };
  const start = async (message: MessageToSend) => {
    const session = await sessions.create();
    setOpening({ sessionId: session.sessionId, message });
    show(session.sessionId);
  };
  const frame = {
    onOpenSidebar: () => setSidebarOpen(true),
    onPanel: setPanel,
  };

  return (
    <div className="page" data-sidebar={isSidebarOpen ? 'open' : 'closed'}>
      <PageActions />
      <Sidebar
        sessions={sessions}
        current={sessionId}
        onShow={show}
        onPanel={setPanel}
        onClose={() => setSidebarOpen(false)}
      />
      {sessionId === undefined ? (
        <Welcome {...frame} onSend={start} />
      ) : (
        <Conversation
          {...frame}
          key={sessionId}
          sessionId={sessionId}
          title={sessions.sessions.find((each) => each.sessionId === sessionId)?.title}
          opening={opening?.sessionId === sessionId ? opening.message : undefined}
          onTurnOver={sessions.refresh}
        />
      )}
      <Panels name={panel} sessionId={sessionId} onClose={() => setPanel(undefined)} />
    </div>
  );
}

const read = () => /^#\/s\/([\w-]+)$/.exec(location.hash)?.[1];

/** The session in the address bar, and a function to change it. */
function useSessionId(): readonly [string | undefined, (sessionId?: string) => void] {
  const [sessionId, setSessionId] = useState(read);
  useEffect(() => {
    const update = () => setSessionId(read());
    window.addEventListener('hashchange', update);
    return () => window.removeEventListener('hashchange', update);
  }, []);
  const go = (next?: string) => {
    location.hash = next ? `#/s/${next}` : '#/';
  };
  return [sessionId, go];
}
