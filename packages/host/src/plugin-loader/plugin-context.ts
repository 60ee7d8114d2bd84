import type {
  EarlyPluginContext,
  Llms,
  OracleUcan,
  PluginContext,
  PluginDatabase,
} from '@sibyl/plugin-kit';
import type { SafeFetch } from '@sibyl/safe-fetch';
import type { Logger } from 'pino';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Store } from '../store/store.js';
import { createPluginTurns, type TurnParts } from './plugin-turns.js';
import type { SelectedPlugin } from './select-plugins.js';

/** What the host lends to every plugin. */
export interface HostServices {
  readonly logger: Logger;
  readonly oracle: OracleIdentity;
  readonly store: Store;
  readonly fetch: SafeFetch;
  readonly ucan: OracleUcan;
  readonly llm: Llms;
  /** Resolves once the host is ready to take messages. */
  readonly turns: Promise<TurnParts>;
}

interface ContextParts {
  readonly selected: SelectedPlugin;
  readonly database: PluginDatabase;
  readonly availablePlugins: ReadonlySet<string>;
  readonly onClose: PluginContext['onClose'];
}

export function createEarlyContext(
  { selected, database, availablePlugins, onClose }: ContextParts,
  { logger, oracle, store, fetch, ucan, llm, turns }: HostServices,
): EarlyPluginContext {
  const { name: plugin, config } = selected;
  const { did, name, entityDid } = oracle;
  return {
    config,
    oracle: { did, name, ...(entityDid && { entityDid }) },
    availablePlugins,
    logger: logger.child({ plugin }),
    database,
    fetch,
    ucan,
    turns: createPluginTurns({ plugin, oracle, sessions: store.sessions, ready: turns }),
    llm,
    onClose,
  };
}
