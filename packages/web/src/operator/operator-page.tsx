import type { OracleClient } from '@sibyl/client';
import { useEffect, useState } from 'react';
import { type TextKey, t } from '../i18n/i18n.js';
import { IconButton } from '../ui/icon.js';
import { OverviewView } from './overview.js';
import { TurnsView } from './turns.js';
import { AuditView, JobsView, PluginsView, UsersView } from './views.js';

const SECTIONS = {
  overview: 'operator.overview',
  turns: 'operator.turns',
  users: 'operator.users',
  plugins: 'operator.plugins',
  jobs: 'operator.jobs',
  audit: 'operator.audit',
} as const satisfies Record<string, TextKey>;

export type Section = keyof typeof SECTIONS;

interface OperatorPageProps {
  readonly client: OracleClient;
  readonly name: string;
}

/** Health first, then speed, failures and people. Texts of users and secrets are never part of it. */
export function OperatorPage({ client, name }: OperatorPageProps) {
  const [section, runId] = useHash();
  const [isDrawerOpen, setDrawerOpen] = useState(false);
  const close = () => setDrawerOpen(false);
  return (
    <div className="frame">
      <div className="app">
        <nav className={isDrawerOpen ? 'side is-open' : 'side'} aria-label={t('operator.title')}>
          <div className="side-top">
            <span className="grow clip">{name}</span>
            <span className="badge is-accent">{t('operator.title')}</span>
          </div>
          {Object.entries(SECTIONS).map(([id, title]) => (
            <a
              key={id}
              className="side-link"
              href={`#${id}`}
              aria-current={id === section ? 'page' : undefined}
              onClick={close}
            >
              {t(title)}
            </a>
          ))}
          <span className="grow" />
          <a className="side-link" href="./">
            {t('operator.back')}
          </a>
        </nav>
        {isDrawerOpen && (
          // biome-ignore lint/a11y/noStaticElementInteractions lint/a11y/useKeyWithClickEvents: every link of the drawer closes it too.
          <div className="scrim" onClick={close} />
        )}
        <main className="main">
          <header className="head">
            <IconButton
              className="open-side"
              icon="menu"
              label={t('operator.sections')}
              onClick={() => setDrawerOpen(true)}
            />
            <h1 className="head-title grow clip">{t(SECTIONS[section])}</h1>
          </header>
          <div className="scroll">
            <div className="page page-wide">
              <View section={section} runId={runId} client={client} />
            </div>
          </div>
        </main>
      </div>
    </div>
  );
}

interface ViewProps {
  readonly section: Section;
  readonly runId: string | undefined;
  readonly client: OracleClient;
}

function View({ section, runId, client }: ViewProps) {
  switch (section) {
    case 'overview':
      return <OverviewView client={client} />;
    case 'turns':
      return <TurnsView client={client} runId={runId} />;
    case 'users':
      return <UsersView client={client} />;
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

/** The section and, for a turn, its id: `#turns/<runId>`. */
function useHash(): [Section, string | undefined] {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const update = () => setHash(location.hash);
    addEventListener('hashchange', update);
    return () => removeEventListener('hashchange', update);
  }, []);
  const [section = '', runId] = hash.slice(1).split('/');
  return [section in SECTIONS ? (section as Section) : 'overview', runId];
}
