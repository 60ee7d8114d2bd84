import { readFileSync } from 'node:fs';
import type { AuthExcludedRoute } from '@sibyl/plugin-kit';
import { PublicRoutes } from '@sibyl/plugin-kit/rules';
import type { Logger } from 'pino';
import { createModels, type Models } from '../agent/model/models.js';
import type { Authenticator } from '../auth/authenticator.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import { loadOracleIdentity, type OracleIdentity } from '../auth/oracle-identity.js';
import { RateLimits } from '../auth/rate-limits.js';
import type { Config } from '../config/config.js';
import type { DelegationService } from '../delegation/delegation.service.js';
import type { CallDesk } from '../events/call-desk.js';
import type { EventBus } from '../events/event-bus.js';
import { HostFacts } from '../health/host-facts.js';
import type { ReplySender } from '../messages/reply-sender.js';
import { Metrics } from '../observe/metrics.js';
import type { LoadedPlugins } from '../plugin-loader/load-plugins.js';
import type { TurnParts } from '../plugin-loader/plugin-turns.js';
import type { SelectedPlugin } from '../plugin-loader/select-plugins.js';
import { SessionsService } from '../sessions/sessions.service.js';
import { openStore } from '../store/open-store.js';
import type { Store } from '../store/store.js';
import { BodyBudget } from '../transport/body-budget.js';
import type { Gates } from '../turn/gates/gates.js';
import type { MissedEvents } from '../turn/runs/missed-events.js';
import type { Titles } from '../turn/titles.js';
import type { Turns } from '../turn/turns.js';
import { wireAuth } from './wire-auth.js';
import { wirePlugins } from './wire-plugins.js';
import { wireTurns } from './wire-turns.js';

/** What the host is made of, built before Nest and without it. */
export interface HostParts {
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly oracle: OracleIdentity;
  readonly facts: HostFacts;
  readonly publicRoutes: PublicRoutes;
  readonly store: Store;
  readonly authenticator: Authenticator;
  readonly authority: DelegatedAuthority;
  readonly delegations: DelegationService;
  readonly rateLimits: RateLimits;
  /** Largest request body, in bytes. */
  readonly bodyLimit: number;
  readonly bodyBudget: BodyBudget;
  readonly models: Models;
  readonly sessions: SessionsService;
  readonly turns: Turns;
  readonly titles: Titles;
  readonly gates: Gates;
  readonly replies: ReplySender;
  readonly events: EventBus;
  readonly desk: CallDesk;
  readonly missed: MissedEvents;
  readonly plugins: LoadedPlugins;
}

interface HostPartsOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly selected: readonly SelectedPlugin[];
  readonly authExcludedRoutes: readonly AuthExcludedRoute[];
}

/** Loads the oracle's key, opens the store, sets up the plugins and wires who may do what. */
export async function buildHostParts(options: HostPartsOptions): Promise<HostParts> {
  const { config, logger } = options;
  const oracle = await loadOracleIdentity(config);
  const store = await openStore({
    databaseUrl: config.databaseUrl,
    dataDir: config.dataDir,
    secretKey: oracle.signer.exportSeed(),
    onConnectionLost: (err) => logger.warn({ err }, 'database connection lost'),
  });
  try {
    return await wire(options, oracle, store);
  } catch (error) {
    await store.close();
    throw error;
  }
}

async function wire(
  { config, logger, selected, authExcludedRoutes }: HostPartsOptions,
  oracle: OracleIdentity,
  store: Store,
): Promise<HostParts> {
  const metrics = new Metrics();
  const models = createModels(config.models);
  const { oracleAuthority, ...auth } = wireAuth({ config, logger, metrics, oracle, store });
  // Plugins bring what turns are made of, and may start turns themselves once those are there.
  const ready = Promise.withResolvers<TurnParts>();
  const plugins = await wirePlugins(selected, {
    config,
    logger,
    oracle,
    store,
    models,
    ucan: oracleAuthority,
    turns: ready.promise,
  });
  const needs = { config, logger, metrics, oracle, store, models, authority: auth.authority };
  const turnParts = wireTurns({ ...needs, plugins: plugins.plugins });
  ready.resolve(turnParts);
  const opened = plugins.plugins.flatMap(({ openRoutes }) => openRoutes);
  return {
    logger,
    metrics,
    oracle,
    facts: new HostFacts(
      readVersion(),
      plugins.plugins.map(({ name }) => name),
      Object.assign({}, ...plugins.plugins.map(({ shared }) => shared)),
    ),
    publicRoutes: new PublicRoutes([...opened, ...authExcludedRoutes]),
    store,
    bodyLimit: config.bodyLimit,
    bodyBudget: new BodyBudget(config.bodiesLimit),
    sessions: new SessionsService({
      ...turnParts,
      sessions: store.sessions,
      oracle,
      maxPerUser: config.sessionsPerUser,
    }),
    rateLimits: new RateLimits({ ...config.rateLimits, metrics }),
    models,
    plugins,
    ...auth,
    ...turnParts,
  };
}

function readVersion(): string {
  const path = new URL('../../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}
