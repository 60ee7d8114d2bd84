import type { OracleClient } from '@sibyl/client';
import { useEffect, useState } from 'react';
import { TurnsView } from './turns.js';
import { AuditView, JobsView, OverviewView, PluginsView, UsersView } from './views.js';

const SECTIONS = {
  overview: 'Overview',
  turns: 'Turns',
  users: 'Users',
  plugins: 'Plugins',
  jobs: 'Jobs and schedules',
  audit: 'Audit log',
} as const;

export type Section = keyof typeof SECTIONS;

interface OperatorPageProps {
  readonly client: OracleClient;
  readonly name: string;
}

/** Health first, then speed, failures and people. Texts of users and secrets are never part of it. */
export function OperatorPage({ client, name }: OperatorPageProps) {
  const [section, runId] = useHash();
  return (
    <div className="app">
      <nav className="side" aria-label="Operator">
        <div className="side-top">
          <span className="grow">{name}</span>
          <span className="badge is-accent">Operator</span>
        </div>
        {Object.entries(SECTIONS).map(([id, title]) => (
          <a
            key={id}
            className="side-link"
            href={`#${id}`}
            aria-current={id === section ? 'page' : undefined}
          >
            {title}
          </a>
        ))}
        <span className="grow" />
        <a className="side-link" href="./">
          Back to conversations
        </a>
      </nav>
      <main className="main">
        <div className="head">
          <h1 className="grow">{SECTIONS[section]}</h1>
        </div>
        <div className="scroll">
          <div className="page page-wide">
            <View section={section} runId={runId} client={client} />
          </div>
        </div>
      </main>
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
