import {
  type BrowserSigner,
  createOracleClient,
  type OracleClient,
  OracleClientError,
  openBrowserSigner,
} from '@sibyl/client';
import { useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { applyLanguage, loadArea, readLanguage, t } from '../i18n/i18n.js';
import { applyTheme, followContrast, readTheme } from '../page/theme.js';
import { OperatorPage } from './operator-page.js';
import '../styles/index.css';
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
  if (!access) return <main className="blank" aria-busy="true" aria-label={t('chat.loading')} />;
  switch (access.state) {
    case 'operator':
      return <OperatorPage client={access.client} name={access.name} />;
    case 'stranger':
      return <Stranger did={access.did} />;
    case 'failed':
      return (
        <main className="blank" role="alert">
          <h1 className="title-1">{t('chat.start.failed')}</h1>
          <p>{access.reason}</p>
          <button type="button" className="btn" onClick={() => location.reload()}>
            {t('chat.tryAgain')}
          </button>
        </main>
      );
    default:
      return access satisfies never;
  }
}

function Stranger({ did }: { readonly did: string }) {
  return (
    <main className="blank">
      <h1 className="title-1">{t('operator.stranger')}</h1>
      <p>{t('operator.stranger.hint')}</p>
      <p>
        <code dir="ltr">sibyl operators add {did}</code>
      </p>
      <p>
        <a href="./">{t('operator.back')}</a>
      </p>
    </main>
  );
}

applyTheme(readTheme());
followContrast();
const root = createRoot(document.getElementById('page') as HTMLElement);
const show = () => {
  document.title = `Sibyl · ${t('operator.title')}`;
  root.render(<Start />);
};
loadArea('operator')
  .then(() => applyLanguage(readLanguage()))
  // Without a catalog, the page is in English.
  .then(show, show);
