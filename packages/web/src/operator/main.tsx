import {
  type BrowserSigner,
  createOracleClient,
  type OracleClient,
  OracleClientError,
  openBrowserSigner,
} from '@sibyl/client';
import { type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { explainError } from '../i18n/explain-error.js';
import { followClock } from '../i18n/format.js';
import { followLanguage, loadArea, type TextKey, t, useLanguage } from '../i18n/i18n.js';
import { useDrawerFocus } from '../page/head.js';
import { followContrast, followTheme } from '../page/theme.js';
import '../styles/index.css';
import './operator.css';
import { Icon, IconButton, type IconName } from '../ui/icon.js';
import { OverviewView } from './overview.js';
import { TurnsView } from './turns.js';
import { AuditView, JobsView, PluginsView, UsersView } from './views.js';

/** The oracle serves this page one folder below its own address. */
const oracleUrl = new URL('..', location.href.split('#')[0]).href;

type Access =
  | { readonly state: 'locked'; readonly renderScreen: () => ReactNode }
  | { readonly state: 'operator'; readonly client: OracleClient; readonly name: string }
  | { readonly state: 'stranger'; readonly did: string }
  | { readonly state: 'failed'; readonly error: Error };

/** Operators log in with the key of their browser, the same as for conversations. */
async function open(show: (access: Access) => void): Promise<Access> {
  const signer: BrowserSigner = await openBrowserSigner();
  if (signer.isLocked) await unlock(signer, show);
  const client = createOracleClient({ url: oracleUrl, signer });
  followClock(client);
  try {
    await client.operator.overview();
    return { state: 'operator', client, name: (await client.card()).name };
  } catch (error) {
    if (error instanceof OracleClientError && error.code === 'forbidden')
      return { state: 'stranger', did: signer.did };
    throw error;
  }
}

/** Some browsers ask for a passkey only after a click. */
async function unlock(signer: BrowserSigner, show: (access: Access) => void): Promise<void> {
  const [{ UnlockScreen }] = await Promise.all([
    import('../settings/identity/unlock-screen.js'),
    loadArea('settings'),
  ]);
  await new Promise<void>((onUnlocked) => {
    const renderScreen = () => <UnlockScreen signer={signer} onUnlocked={onUnlocked} />;
    show({ state: 'locked', renderScreen });
  });
}

function Start() {
  const [access, setAccess] = useState<Access>();
  useEffect(() => {
    open(setAccess).then(setAccess, (error: Error) => setAccess({ state: 'failed', error }));
  }, []);
  const language = useLanguage();
  useEffect(() => {
    document.title = `Sibyl · ${t('operator.title')}`;
  }, [language]);
  if (!access) return <main className="blank" aria-busy="true" aria-label={t('chat.loading')} />;
  switch (access.state) {
    case 'locked':
      return access.renderScreen();
    case 'operator':
      return <OperatorPage client={access.client} name={access.name} />;
    case 'stranger':
      return <Stranger did={access.did} />;
    case 'failed':
      return (
        <main className="blank" role="alert">
          <h1 className="title-1">{t('chat.start.failed')}</h1>
          <p>{explainError(access.error)}</p>
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

followTheme();
followContrast();
const root = createRoot(document.getElementById('page') as HTMLElement);
const show = () => root.render(<Start />);
// With a static import, the chat page would load these styles first too: both pages share a file.
Promise.all([
  loadArea('operator'),
  import('../styles/answer.css'),
  import('../styles/settings.css'),
])
  .then(followLanguage)
  // Without a catalog, the page is in English.
  .then(show, show);

const SECTIONS = {
  overview: ['operator.overview', 'pulse'],
  turns: ['operator.turns', 'chat'],
  users: ['operator.users', 'users'],
  plugins: ['operator.plugins', 'tool'],
  jobs: ['operator.jobs', 'cal'],
  audit: ['operator.audit', 'file'],
} as const satisfies Record<string, readonly [TextKey, IconName]>;

export type Section = keyof typeof SECTIONS;

/** Health first, then speed, failures and people. Texts of users and secrets are never part of it. */
function OperatorPage({ client, name }: { readonly client: OracleClient; readonly name: string }) {
  const { section, runId, query } = useHash();
  const [isDrawerOpen, setDrawerOpen] = useState(false);
  const close = () => setDrawerOpen(false);
  const side = useRef<HTMLElement>(null);
  useDrawerFocus(side, isDrawerOpen);
  return (
    <div className="frame">
      <div className="app">
        <nav
          ref={side}
          className={isDrawerOpen ? 'side is-open' : 'side'}
          aria-label={t('operator.title')}
          onKeyDown={({ key }: KeyboardEvent) => key === 'Escape' && close()}
        >
          <div className="side-top">
            <span className="logo">
              <Icon name="eye" />
            </span>
            <span className="grow clip">{name}</span>
            <span className="badge is-accent">{t('operator.title')}</span>
          </div>
          <SectionLinks section={section} onChosen={close} />
          <span className="grow" />
          <a className="side-link" href="./">
            <Icon name="left" flip />
            {t('operator.back')}
          </a>
        </nav>
        {isDrawerOpen && (
          // biome-ignore lint/a11y/noStaticElementInteractions lint/a11y/useKeyWithClickEvents: Escape and every link of the drawer close it too.
          <div className="scrim" onClick={close} />
        )}
        <main className="main" inert={isDrawerOpen}>
          <header className="head">
            <IconButton
              className="open-side"
              icon="menu"
              label={t('operator.sections')}
              onClick={() => setDrawerOpen(true)}
            />
            <h1 className="head-title grow clip">{t(SECTIONS[section][0])}</h1>
          </header>
          <div className="scroll">
            <div className="page page-wide">
              <View section={section} runId={runId} query={query} client={client} />
            </div>
          </div>
        </main>
      </div>
    </div>
  );
}

interface SectionLinksProps {
  readonly section: Section;
  readonly onChosen: () => void;
}

const SectionLinks = ({ section, onChosen }: SectionLinksProps) =>
  Object.entries(SECTIONS).map(([id, [title, icon]]) => (
    <a
      key={id}
      className="side-link"
      href={`#${id}`}
      aria-current={id === section ? 'page' : undefined}
      onClick={onChosen}
    >
      <Icon name={icon} />
      {t(title)}
    </a>
  ));

function View({ section, runId, query, client }: Place & { readonly client: OracleClient }) {
  switch (section) {
    case 'overview':
      return <OverviewView client={client} />;
    case 'turns':
      return <TurnsView key={query} client={client} runId={runId} query={query} />;
    case 'users':
      return <UsersView key={query} client={client} query={query} />;
    case 'plugins':
      return <PluginsView client={client} />;
    case 'jobs':
      return <JobsView client={client} />;
    case 'audit':
      return <AuditView client={client} />;
    default:
      return section satisfies never;
  }
}

interface Place {
  readonly section: Section;
  /** The turn to show in detail. */
  readonly runId: string | undefined;
  /** What is shown of a list, as parameters. */
  readonly query: string;
}

/** The place in the address: `#turns/<runId>?user=<did>`. */
function useHash(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const update = () => setHash(location.hash);
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  const [path = '', query = ''] = hash.slice(1).split('?');
  const [section = '', runId] = path.split('/');
  const isKnown = Object.hasOwn(SECTIONS, section);
  return { section: isKnown ? (section as Section) : 'overview', runId, query };
}
