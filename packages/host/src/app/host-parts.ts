import { readFileSync } from 'node:fs';
import type { AuthExcludedRoute } from '@sibyl/plugin-kit';
import { PublicRoutes } from '@sibyl/plugin-kit/rules';
import type { Logger } from 'pino';
import { createModels, type Models } from '../agent/model/models.js';
import type { Authenticator } from '../auth/authenticator.js';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { DelegatedAuthority } from '../auth/delegated-authority.js';
import { loadOracleIdentity, type OracleIdentity } from '../auth/oracle-identity.js';
import type { PresentedDelegations } from '../auth/presented-delegations.js';
import { RateLimits } from '../auth/rate-limits.js';
import type { Config } from '../config/config.js';
import type { DelegationService } from '../delegation/delegation.service.js';
import type { CallDesk } from '../events/call-desk.js';
import type { EventBus } from '../events/event-bus.js';
import { HostFacts } from '../health/host-facts.js';
import { ModelHealth } from '../health/model-health.js';
import { ReadinessChecks } from '../health/readiness-checks.js';
import type { ReplySender } from '../messages/reply-sender.js';
import { Metrics } from '../observe/metrics.js';
import type { LoadedPlugins } from '../plugin-loader/load-plugins.js';
import type { TurnParts } from '../plugin-loader/plugin-turns.js';
import type { SelectedPlugin } from '../plugin-loader/select-plugins.js';
import { SessionsService } from '../sessions/sessions.service.js';
import { openStore } from '../store/open-store.js';
import type { Store } from '../store/store.js';
import { StoreOutage } from '../store/store-outage.js';
import { WriteProbe } from '../store/write-probe.js';
import { BodyBudget } from '../transport/body-budget.js';
import type { Gates } from '../turn/gates/gates.js';
import { ModelBudget } from '../turn/model-budget.js';
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
  readonly readiness: ReadinessChecks;
  readonly publicRoutes: PublicRoutes;
  readonly store: Store;
  readonly authenticator: Authenticator;
  readonly authority: DelegatedAuthority;
  readonly allowList: CallerAllowList;
  readonly presented: PresentedDelegations;
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
  readonly budget: ModelBudget;
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
  const outage = new StoreOutage(logger);
  const store = await openStore({
    databaseUrl: config.databaseUrl,
    dataDir: config.dataDir,
    poolSize: config.databasePoolSize,
    writeWaitMs: config.turns.storeWaitMs,
    diskMinFree: config.diskMinFree,
    secretKey: oracle.signer.exportSeed(),
    outage,
    onConnectionLost: (error) => outage.failed(error),
  });
  try {
    return await wire(options, oracle, store);
  } catch (error) {
    await store.close();
    throw error;
  }
}

async function wire(
  options: HostPartsOptions,
  oracle: OracleIdentity,
  store: Store,
): Promise<HostParts> {
  const { config, logger, selected } = options;
  const metrics = new Metrics();
  const modelHealth = new ModelHealth();
  const models = modelHealth.watch(createModels(config.models));
  const { tokensPerDay } = config.turns;
  const budget = new ModelBudget({ usage: store.modelUsage, tokensPerDay, logger });
  const { oracleAuthority, ...auth } = wireAuth({ config, logger, metrics, oracle, store });
  // Plugins bring what turns are made of, and may start turns themselves once those are there.
  const ready = Promise.withResolvers<TurnParts>();
  const services = { config, logger, oracle, store, models };
  const lent = { ...services, meter: budget, ucan: oracleAuthority, turns: ready.promise };
  const plugins = await wirePlugins(selected, lent);
  try {
    const { authority } = auth;
    const needs = { ...services, metrics, budget, authority, plugins: plugins.plugins };
    const turnParts = wireTurns(needs);
    ready.resolve(turnParts);
    const readiness = createReadiness(store, modelHealth, plugins);
    const known = { logger, metrics, oracle, store, models, budget, plugins, readiness };
    return { ...known, ...auth, ...turnParts, ...wireRoutes(options, { ...known, turnParts }) };
  } catch (error) {
    await plugins.close();
    throw error;
  }
}

/** What the routes need beside the turns. */
function wireRoutes(
  { config, authExcludedRoutes }: HostPartsOptions,
  known: Pick<HostParts, 'metrics' | 'oracle' | 'store' | 'plugins'> & {
    readonly turnParts: ReturnType<typeof wireTurns>;
  },
) {
  const { metrics, oracle, store, turnParts } = known;
  const { plugins } = known.plugins;
  return {
    facts: describeHost(config, plugins),
    publicRoutes: new PublicRoutes([
      ...plugins.flatMap(({ openRoutes }) => openRoutes),
      ...authExcludedRoutes,
    ]),
    bodyLimit: config.bodyLimit,
    bodyBudget: new BodyBudget(config.bodiesLimit),
    sessions: new SessionsService({
      ...turnParts,
      sessions: store.sessions,
      oracle,
      maxPerUser: config.sessionsPerUser,
      disk: store.disk,
    }),
    rateLimits: new RateLimits({ ...config.rateLimits, metrics }),
  };
}

function createReadiness(
  store: Store,
  model: ModelHealth,
  { plugins }: LoadedPlugins,
): ReadinessChecks {
  const probe = new WriteProbe(store);
  return new ReadinessChecks({ probe, disk: store.disk, model, plugins: plugins.length });
}

function describeHost({ auth }: Config, plugins: LoadedPlugins['plugins']): HostFacts {
  const features = plugins.map(({ name }) => name);
  if (auth.callersAllow) features.push('invitations');
  return new HostFacts(
    readVersion(),
    features,
    Object.assign({}, ...plugins.map(({ shared }) => shared)),
  );
}

function readVersion(): string {
  const path = new URL('../../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}
