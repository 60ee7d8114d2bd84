import {
  type BrowserSigner,
  createOracleClient,
  type OracleCard,
  openBrowserSigner,
} from '@sibyl/client';
import { OracleProvider } from '@sibyl/client/react';
import { useEffect, useState } from 'react';
import { storedMatrix } from '../panels/matrix-session.js';
import { type AccessFault, checkAccess, takeInvitation } from './invitation.js';
import { loadPageSettings, oracleAddress, type PageSettings } from './oracle-address.js';
import { Page } from './page.js';
import { PageContext } from './page-context.js';

interface Ready {
  readonly signer: BrowserSigner;
  readonly client: ReturnType<typeof createOracleClient>;
  readonly card: OracleCard;
  readonly settings: PageSettings;
  readonly accessFault: AccessFault | undefined;
}

async function open(invitation: string | undefined): Promise<Ready> {
  const signer = await openBrowserSigner();
  const settings = await loadPageSettings();
  const matrix = storedMatrix(settings.matrixBaseUrl);
  const client = createOracleClient({ url: oracleAddress(), signer, ...(matrix && { matrix }) });
  const card = await client.card();
  const accessFault = await checkAccess(client, invitation);
  return { signer, client, settings, card, accessFault };
}

/** Read once, before any part of the page looks at the address. */
const invitation = takeInvitation();

/** Opens or makes the user's key, meets the oracle, then shows the page. */
export function Start() {
  const [ready, setReady] = useState<Ready>();
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

function NotAdmitted({ fault, did }: { readonly fault: AccessFault; readonly did: string }) {
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
