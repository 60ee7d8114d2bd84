import { createRoot } from 'react-dom/client';
import { explainError } from './i18n/explain-error.js';
import { followClock } from './i18n/format.js';
import { followLanguage, loadArea, t, useLanguage } from './i18n/i18n.js';
import { followContrast, followTheme } from './page/theme.js';
import './styles/index.css';
import {
  type BrowserSigner,
  createOracleClient,
  type OracleCard,
  type OracleClient,
  OracleClientError,
  openBrowserSigner,
} from '@sibyl/client';
import { OracleProvider } from '@sibyl/client/react';
import { type ReactNode, useEffect, useState } from 'react';
import { Outbox } from './chat/outbox.js';
import { Page } from './page/page.js';
import { PageContext, type PageSettings } from './page/page-context.js';
import { takeDeviceKey } from './settings/identity/device-link.js';
import { Blank, ErrorBoundary, LoadFailure, reload } from './ui/error-boundary.js';

followTheme();
followContrast();
followLinks();
const root = createRoot(document.getElementById('page') as HTMLElement);
followLanguage().then(
  () => root.render(<Start />),
  // Without its catalog, the page is in English.
  () => root.render(<Start />),
);

interface OpenedPage {
  readonly signer: BrowserSigner;
  readonly client: ReturnType<typeof createOracleClient>;
  readonly card: OracleCard;
  readonly settings: PageSettings;
  readonly accessError: AccessError | undefined;
  readonly outbox: Outbox;
}

async function open(
  invitation: string | undefined,
  unlocked: BrowserSigner | undefined,
  unlock: (signer: BrowserSigner) => Promise<void>,
): Promise<OpenedPage> {
  const [signer, settings] = await Promise.all([
    unlocked ?? openBrowserSigner(),
    loadPageSettings(),
  ]);
  if (signer.isLocked && signer !== unlocked) await unlock(signer);
  const matrix = await loadMatrixSession(settings.matrixBaseUrl, signer.did);
  const client = createOracleClient({ url: getOracleUrl(), signer, ...(matrix && { matrix }) });
  followClock(client);
  const card = await client.card();
  const accessError = await checkAccess(client, invitation);
  return { signer, client, settings, card, accessError, outbox: new Outbox(client) };
}

/** Read before other parts of the page use the address. */
const invitation = takeInvitation();
takeDeviceKey();

/** What is shown instead of the page; rendered again when the language changes. */
interface StartScreen {
  readonly render: () => ReactNode;
}

/** Opens or generates the user's key, connects to the oracle, then shows the page. */
export function Start() {
  const [ready, setReady] = useState<Omit<OpenedPage, 'accessError'>>();
  const [screen, setScreen] = useState<StartScreen>();
  useLanguage();
  useEffect(() => {
    // Another attempt does not ask for the passkey again.
    let unlocked: BrowserSigner | undefined;
    const unlock = async (signer: BrowserSigner) => {
      const { UnlockScreen } = await loadScreens();
      await new Promise<void>((onUnlocked) =>
        setScreen({ render: () => <UnlockScreen signer={signer} onUnlocked={onUnlocked} /> }),
      );
      unlocked = signer;
      setScreen(undefined);
    };
    const start = async () => {
      const { accessError, ...opened } = await open(invitation, unlocked, unlock);
      setScreen(undefined);
      if (!accessError) return setReady(opened);
      const { BlockedScreen } = await loadScreens();
      setScreen({ render: () => <BlockedScreen error={accessError} did={opened.signer.did} /> });
    };
    const attempt = (): Promise<void> =>
      start().catch(async (error: Error) => {
        setScreen(await explain(error));
        if (!isUnsupported(error)) retryLater(() => void attempt());
      });
    void attempt();
  }, []);
  if (screen) return screen.render();
  if (!ready) return <main className="blank" aria-busy="true" aria-label={t('chat.loading')} />;
  const { client, ...rest } = ready;
  return (
    <OracleProvider client={client}>
      <PageContext value={rest}>
        <ErrorBoundary fallback={<FailedPage />}>
          <Page />
        </ErrorBoundary>
      </PageContext>
    </OracleProvider>
  );
}

const FailedPage = () => (
  <main className="blank">
    <LoadFailure />
  </main>
);

/** Few visitors see these screens. */
async function loadScreens() {
  const [{ UnlockScreen, BlockedScreen }] = await Promise.all([
    import('./settings/identity/unlock-screen.js'),
    loadArea('settings'),
  ]);
  return { UnlockScreen, BlockedScreen };
}

const RETRY_MS = 5_000;

/** A browser may notice before that it is online. */
function retryLater(attempt: () => void): void {
  const stop = new AbortController();
  const retry = () => {
    stop.abort();
    clearTimeout(timer);
    attempt();
  };
  const timer = setTimeout(retry, RETRY_MS);
  window.addEventListener('online', retry, stop);
}

const isUnsupported = (error: Error): boolean =>
  error instanceof OracleClientError && error.code === 'unsupported_platform';

async function explain(error: Error): Promise<StartScreen> {
  const screens = isUnsupported(error) && (await loadScreens().catch(() => undefined));
  if (screens) return { render: () => <screens.BlockedScreen error={error} /> };
  const render = () => (
    <Blank title={t('chat.start.failed')}>
      <p className="quiet">{explainError(error)}</p>
      <p>{t('chat.start.failed.hint')}</p>
    </Blank>
  );
  return { render };
}

/** Why the user may not use the oracle; `code` as in the client's errors. */
interface AccessError {
  readonly code: string;
  readonly message: string;
}

/** Reads the invitation from the address and removes it, so that it does not stay in the history. */
function takeInvitation(): string | undefined {
  const invitation = new URLSearchParams(location.hash.slice(1)).get('invite');
  if (invitation === null) return undefined;
  history.replaceState(history.state, '', `${location.pathname}${location.search}`);
  // Some programs decode %2B in links, and a plus sign in a query means a space.
  return invitation.replaceAll(' ', '+');
}

/** A link with an invitation or a key is also followed in a tab that shows the page already. */
function followLinks(): void {
  window.addEventListener('hashchange', () => {
    if (/^#(invite|key)=/.test(location.hash)) reload();
  });
}

/**
 * Redeems an invitation and checks whether the user may use an oracle for invited users. An error of
 * the invitation matters only if the user has no access yet.
 */
async function checkAccess(
  client: OracleClient,
  invitation: string | undefined,
): Promise<AccessError | undefined> {
  const rejected =
    invitation === undefined
      ? undefined
      : await findAccessError(() => client.redeemInvitation(invitation));
  const { features } = await client.card();
  if (!features.includes('invitations')) return undefined;
  const denied = await findAccessError(() => client.sessions.list({ limit: 1 }));
  return denied?.code === 'caller_not_allowed' ? (rejected ?? denied) : undefined;
}

/** Throws other errors, such as a lost connection. */
async function findAccessError(work: () => Promise<unknown>): Promise<AccessError | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    if (error instanceof OracleClientError && ACCESS_CODES.has(error.code)) return error;
    throw error;
  }
}

const ACCESS_CODES: ReadonlySet<string> = new Set([
  'caller_not_allowed',
  'invalid_invitation',
  'invitation_used',
  'invitation_expired',
  'validation_failed',
]);

/** Only some oracles have a homeserver. */
async function loadMatrixSession(homeServer: string | undefined, did: string) {
  if (!homeServer) return undefined;
  return (await import('./panels/matrix-panel.js')).readMatrixSession(homeServer, did);
}

/** The oracle serves this page one folder below its own address. */
const getOracleUrl = (): string => new URL('..', location.href.split('#')[0]).href;

async function loadPageSettings(): Promise<PageSettings> {
  try {
    const response = await fetch(new URL('settings.json', location.href.split('#')[0]));
    return response.ok ? await response.json() : {};
  } catch (cause) {
    throw new OracleClientError('network_error', t('chat.error.network'), { cause });
  }
}
