import {
  type BrowserSigner,
  createOracleClient,
  type OracleClient,
  OracleClientError,
  openBrowserSigner,
} from '@sibyl/client';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { OperatorPage } from './operator-page.js';
import './operator.css';

/** The oracle serves this page one folder below its own address. */
const oracleUrl = new URL('..', location.href.split('#')[0]).href;

type Access =
  | { readonly state: 'operator'; readonly client: OracleClient; readonly name: string }
  | { readonly state: 'stranger'; readonly did: string }
  | { readonly state: 'failed'; readonly reason: string };

/** Operators log in with the key of their browser, the same as for conversations. */
async function open(): Promise<Access> {
  const signer: BrowserSigner = await openBrowserSigner();
  const client = createOracleClient({ url: oracleUrl, signer });
  try {
    await client.operator.overview();
    return { state: 'operator', client, name: (await client.card()).name };
  } catch (error) {
    if (error instanceof OracleClientError && error.code === 'forbidden')
      return { state: 'stranger', did: signer.did };
    throw error;
  }
}

function Start() {
  const [access, setAccess] = useState<Access>();
  useEffect(() => {
    open().then(setAccess, (error: Error) => setAccess({ state: 'failed', reason: error.message }));
  }, []);
  if (!access) return <main className="empty" aria-busy="true" aria-label="Loading" />;
  switch (access.state) {
    case 'operator':
      return <OperatorPage client={access.client} name={access.name} />;
    case 'stranger':
      return <Stranger did={access.did} />;
    case 'failed':
      return (
        <main className="empty" role="alert">
          <h1 className="title-1">Can’t reach the server</h1>
          <p>{access.reason}</p>
          <button type="button" className="btn" onClick={() => location.reload()}>
            Try again
          </button>
        </main>
      );
    default:
      return access satisfies never;
  }
}

function Stranger({ did }: { readonly did: string }) {
  return (
    <main className="empty">
      <h1 className="title-1">This page is for operators</h1>
      <p>If you operate this oracle, run this where it runs, then reload the page:</p>
      <p>
        <code>sibyl operators add {did}</code>
      </p>
      <p>
        <a href="./">Back to conversations</a>
      </p>
    </main>
  );
}

const root = document.getElementById('page');
if (root) createRoot(root).render(<Start />);
