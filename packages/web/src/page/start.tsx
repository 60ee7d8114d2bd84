import {
  type BrowserSigner,
  createOracleClient,
  type OracleCard,
  type OracleClient,
  OracleClientError,
  openBrowserSigner,
} from '@sibyl/client';
import { OracleProvider } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { readMatrixSession } from '../panels/matrix-panel.js';
import { Page } from './page.js';
import { PageContext, type PageSettings } from './page-context.js';

interface OpenedPage {
  readonly signer: BrowserSigner;
  readonly client: ReturnType<typeof createOracleClient>;
  readonly card: OracleCard;
  readonly settings: PageSettings;
  readonly accessFault: AccessError | undefined;
}

async function open(invitation: string | undefined): Promise<OpenedPage> {
  const signer = await openBrowserSigner();
  const settings = await loadPageSettings();
  const matrix = readMatrixSession(settings.matrixBaseUrl);
  const client = createOracleClient({ url: getOracleUrl(), signer, ...(matrix && { matrix }) });
  const card = await client.card();
  const accessFault = await checkAccess(client, invitation);
  return { signer, client, settings, card, accessFault };
}

/** Read once, before any part of the page looks at the address. */
const invitation = takeInvitation();

/** Opens or makes the user's key, meets the oracle, then shows the page. */
export function Start() {
  const [ready, setReady] = useState<OpenedPage>();
  const [fault, setFault] = useState<string>();
  useEffect(() => {
    open(invitation).then(setReady, (error: Error) => setFault(error.message));
  }, []);
  if (fault) {
    return (
      <main className="notice" role="alert">
        <h1>The conversation cannot begin</h1>
        <p>{fault}</p>
        <button type="button" onClick={() => location.reload()}>
          Try again
        </button>
      </main>
    );
  }
  if (!ready) return <main className="notice" aria-busy="true" aria-label="Loading" />;
  const { client, accessFault, ...rest } = ready;
  if (accessFault) return <NotAdmitted fault={accessFault} did={rest.signer.did} />;
  return (
    <OracleProvider client={client}>
      <PageContext value={rest}>
        <Page />
      </PageContext>
    </OracleProvider>
  );
}

function NotAdmitted({ fault, did }: { readonly fault: AccessError; readonly did: string }) {
  return (
    <main className="notice" role="alert">
      <h1>You need an invitation</h1>
      <p>{fault.message}</p>
      <p>
        Your DID, if the operator asks for it: <code>{did}</code>
      </p>
      <button type="button" onClick={() => location.reload()}>
        Try again
      </button>
    </main>
  );
}

/** What keeps the user from the oracle, if anything; `code` as in the client's errors. */
interface AccessError {
  readonly code: string;
  readonly message: string;
}

/** The invitation in the address, which is removed from it: it must not stay in the history. */
function takeInvitation(): string | undefined {
  const invitation = new URLSearchParams(location.hash.slice(1)).get('invite');
  if (invitation === null) return undefined;
  history.replaceState(history.state, '', `${location.pathname}${location.search}`);
  // Some programs decode %2B in links, and a plus sign in a query stands for a space.
  return invitation.replaceAll(' ', '+');
}

/**
 * Redeems an invitation and finds out whether the user may use an oracle for invited users. A fault
 * of the invitation counts only for a user who is not admitted anyway.
 */
async function checkAccess(
  client: OracleClient,
  invitation: string | undefined,
): Promise<AccessError | undefined> {
  const refused =
    invitation === undefined
      ? undefined
      : await findAccessError(() => client.redeemInvitation(invitation));
  const { features } = await client.card();
  if (!features.includes('invitations')) return undefined;
  const closed = await findAccessError(() => client.sessions.list({ limit: 1 }));
  return closed?.code === 'caller_not_allowed' ? (refused ?? closed) : undefined;
}

/** Other faults than refusals, such as a lost connection, are for the caller. */
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

/** Where the oracle is: the page is served by it, one folder down. */
const getOracleUrl = (): string => new URL('..', location.href.split('#')[0]).href;

async function loadPageSettings(): Promise<PageSettings> {
  const response = await fetch(new URL('settings.json', location.href.split('#')[0]));
  return response.ok ? response.json() : {};
}
