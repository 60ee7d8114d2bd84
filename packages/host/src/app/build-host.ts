import { readFileSync } from 'node:fs';
import type { AuthExcludedRoute, Embeddings, ModelUse, OraclePlugin } from '@sibyl/plugin-kit';
import { PublicRoutes, SurfaceRoutes } from '@sibyl/plugin-kit/rules';
import { createSafeFetch, type SafeFetch } from '@sibyl/safe-fetch';
import { ByteBudget } from '@sibyl/server-kit';
import {
  createCachedResolver,
  createDidIxoResolver,
  createDidKeyResolver,
  createDidResolver,
  createDidWebResolver,
  createMinter,
  createVerifier,
  type DidResolver,
  systemClock,
  type TokenPurpose,
  type UcanError,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { Meter } from '../agent/agent.js';
import { createLlms } from '../agent/ask-model.js';
import { AccessKeys } from '../auth/access-keys.js';
import { Authenticator, PresentedDelegations } from '../auth/authenticator.js';
import { CallerAllowList } from '../auth/caller-allow-list.js';
import { DelegatedAuthority } from '../auth/delegated-authority.js';
import { DelegationService } from '../auth/delegations.js';
import { Holders } from '../auth/holders.js';
import { OutageRevocations } from '../auth/operators.js';
import {
  loadOracleIdentity,
  OracleAuthority,
  type OracleIdentity,
} from '../auth/oracle-identity.js';
import { RateLimits } from '../auth/rate-limits.js';
import { RunGrants } from '../auth/run-grants.js';
import { UserRules } from '../auth/user-rules.js';
import { type Cluster, joinCluster } from '../bus/cluster.js';
import type { EventBus } from '../bus/event-bus.js';
import type { PendingClientCalls } from '../bus/pending-client-calls.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { SocketPresence } from '../bus/socket-presence.js';
import type { Config } from '../config/config.js';
import type { FileService } from '../files/file-service.js';
import { openFiles } from '../files/open-files.js';
import { SentFiles } from '../files/sent-files.js';
import { HostFacts } from '../http/discovery.controller.js';
import { ModelHealth, ReadinessChecks } from '../http/health.controller.js';
import type { ReplySender } from '../http/reply-sender.js';
import { OriginPolicy } from '../http/ucan-guard.js';
import { createEmbeddings } from '../models/embedding-model.js';
import { createModels, type Models } from '../models/models.js';
import { createFailureReport, observeModels } from '../models/observed-models.js';
import { Metrics } from '../observability/metrics.js';
import { findScope, type SpanExporter } from '../observability/spans.js';
import { HostEvents } from '../operators/host-reports.js';
import { type LoadedPlugins, loadPlugins } from '../plugins/load-plugins.js';
import type { HostServices } from '../plugins/plugin-context.js';
import type { PluginStatus, SelectedPlugin } from '../plugins/select-plugins.js';
import type { TurnServices } from '../plugins/surface.js';
import { openStore, type Store, WriteProbe } from '../store/store.js';
import { StoreOutage } from '../store/store-outage.js';
import type { Approvals } from '../turns/approvals.js';
import type { FeedbackService } from '../turns/feedback.js';
import type { Gates } from '../turns/gates.js';
import type { PausedTurns } from '../turns/paused-turns.js';
import type { MissedEvents } from '../turns/run-reader.js';
import type { SessionsService } from '../turns/sessions.js';
import type { Takeover } from '../turns/takeover.js';
import type { Titles } from '../turns/titles.js';
import { ModelBudget } from '../turns/turn-limits.js';
import type { Turns } from '../turns/turns.js';
import { traceBus, traceDatabase } from './traced-services.js';
import { addGauges, type OperatorDeps, wireOperators } from './wire-operators.js';
import { type OwnDataServices, wireOwnData } from './wire-own-data.js';
import { wireTurns } from './wire-turns.js';

/** The part of BODIES_LIMIT that one address may use. */
const BODIES_ADDRESS_SHARE = 1 / 4;

/** The parts of the host, built before Nest. */
export interface HostDeps extends OwnDataServices, OperatorDeps {
  readonly takeover: Takeover;
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** Unset if spans are not exported. */
  readonly exporter: SpanExporter | undefined;
  readonly hostEvents: HostEvents;
  readonly oracle: OracleIdentity;
  readonly facts: HostFacts;
  readonly readiness: ReadinessChecks;
  readonly publicRoutes: PublicRoutes;
  readonly surfaceRoutes: SurfaceRoutes;
  readonly origins: OriginPolicy;
  readonly cluster: Cluster;
  readonly store: Store;
  readonly authenticator: Authenticator;
  readonly holders: Holders;
  /** What guards have to know while the store does not answer. */
  readonly cachedLists: readonly { start(): Promise<void>; close(): void }[];
  readonly authority: DelegatedAuthority;
  readonly allowList: CallerAllowList;
  readonly presented: PresentedDelegations;
  readonly delegations: DelegationService;
  readonly accessKeys: AccessKeys;
  readonly rateLimits: RateLimits;
  /** Largest request body, in bytes. */
  readonly bodyLimits: Pick<Config, 'bodyLimit' | 'filesBodyLimit'>;
  readonly bodyBudget: ByteBudget;
  readonly models: Models;
  readonly sessions: SessionsService;
  readonly turns: Turns;
  readonly approvals: Approvals;
  readonly paused: PausedTurns;
  readonly rules: UserRules;
  readonly changes: SessionChanges;
  readonly titles: Titles;
  readonly gates: Gates;
  readonly budget: ModelBudget;
  readonly feedback: FeedbackService;
  readonly replies: ReplySender;
  readonly events: EventBus;
  readonly presence: SocketPresence;
  readonly pendingCalls: PendingClientCalls;
  readonly missed: MissedEvents;
  readonly plugins: LoadedPlugins;
  readonly files: FileService;
}

export interface HostOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly selected: readonly SelectedPlugin[];
  readonly unloaded: readonly OraclePlugin[];
  readonly status: readonly PluginStatus[];
  readonly authExcludedRoutes: readonly AuthExcludedRoute[];
}

/** Loads the oracle's key, joins the other hosts, opens the store, sets up the plugins and wires everything together. */
export async function buildHost(options: HostOptions): Promise<HostDeps> {
  const { config, logger } = options;
  const oracle = await loadOracleIdentity(config);
  const joined = await joinCluster({ ...config, logger });
  const isTraced = config.tracing.endpoint !== undefined;
  const cluster = isTraced ? { ...joined, bus: traceBus(joined.bus) } : joined;
  try {
    const store = await openHostStore(options, { oracle, cluster });
    try {
      const deps = await wire(options, { oracle, cluster, store });
      addGauges(deps);
      return deps;
    } catch (error) {
      await store.close();
      throw error;
    }
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

function openHostStore(
  { config, logger }: HostOptions,
  { oracle, cluster }: Pick<HostDeps, 'oracle' | 'cluster'>,
): Promise<Store> {
  const outage = new StoreOutage(logger);
  return openStore({
    hostId: cluster.hostId,
    isHostAlive: () => cluster.liveness.isAlive,
    databaseUrl: config.databaseUrl,
    databaseDirectUrl: config.databaseDirectUrl,
    dataDir: config.dataDir,
    poolSize: config.databasePoolSize,
    writeWaitMs: config.turns.storeWaitMs,
    diskMinFree: config.diskMinFree,
    secretKey: oracle.signer.exportSeed(),
    oracleDid: oracle.did,
    outage,
    onConnectionLost: (error) => outage.failed(error),
    onWait: (reason) => logger.warn(reason),
    ...(config.tracing.endpoint && { observe: traceDatabase }),
  });
}

async function wire(
  options: HostOptions,
  { oracle, cluster, store }: Pick<HostDeps, 'oracle' | 'cluster' | 'store'>,
): Promise<HostDeps> {
  const { config, logger, selected } = options;
  const metrics = new Metrics();
  const exporter = await openExporter(config, cluster.hostId);
  const modelHealth = new ModelHealth();
  const hostEvents = new HostEvents();
  const models = wireModels(options, { metrics, modelHealth, hostEvents });
  const { tokensPerDay } = config.turns;
  const budget = new ModelBudget({ usage: store.modelUsage, tokensPerDay, logger, metrics });
  const needed = { config, logger, metrics, oracle, store, cluster };
  const { oracleAuthority, ...auth } = wireAuth(needed);
  // Plugins contribute to turns, and may start turns themselves once these are set up.
  const ready = Promise.withResolvers<TurnServices>();
  const services = { config, logger, oracle, store, models };
  const { authority, grants, holders } = auth;
  const embeddings = wireEmbeddings(config, budget);
  const shared = { ...services, authority, grants, holders };
  const { bus, liveness } = cluster;
  const common = { ...shared, bus, liveness, embeddings, turns: ready.promise };
  const pluginDeps = { ...common, meter: budget, ucan: oracleAuthority };
  const files = openFiles({ settings: config.files, store, logger, liveness, embeddings });
  const plugins = await wirePlugins([...selected, files.plugin], pluginDeps);
  try {
    const { allowList, verifier, rules, accessKeys } = auth;
    const access = { allowList, verifier, rules, accessKeys, holders };
    const own = { cluster, metrics, exporter, budget, plugins: plugins.plugins };
    const needs = { ...shared, ...access, ...own, uploads: files.uploads };
    const turnDeps = wireTurns(needs);
    const sentFiles = new SentFiles({ ...files, fetch: createPluginFetch(config) });
    ready.resolve({ ...turnDeps, files: sentFiles, plugins: plugins.plugins });
    const readiness = createReadiness({ store, cluster, plugins }, modelHealth);
    const observed = { exporter, readiness, hostEvents };
    const known = { ...needed, ...observed, holders, models, budget, plugins };
    const routeDeps = wireRoutes(options, known);
    const base = { ...known, ...auth, ...turnDeps, files: files.service };
    const ownData = wireOwnData({
      ...base,
      uploads: files.uploads,
      ucan: oracleAuthority,
      unloaded: options.unloaded,
    });
    const built = { ...base, ...routeDeps, ...ownData };
    return { ...built, ...wireOperators(options, built) };
  } catch (error) {
    await plugins.close();
    throw error;
  }
}

function wireEmbeddings({ models }: Config, budget: ModelBudget): Embeddings | undefined {
  const { embedding: config } = models;
  const limits = { check: () => budget.check(), onUse: (use: ModelUse) => budget.add(use) };
  return config && createEmbeddings({ config, ...limits });
}

/** Observes the calls of all models. */
function wireModels(
  { config, logger }: HostOptions,
  observers: Pick<HostDeps, 'metrics' | 'hostEvents'> & { readonly modelHealth: ModelHealth },
): Models {
  const { metrics, hostEvents, modelHealth } = observers;
  const report = createFailureReport(logger, metrics);
  const models = createModels(config.models, {
    onFailure: (model, error, isRetried) => {
      report(model, error, isRetried);
      hostEvents.recordModelFailure(model, error);
    },
  });
  const mainId = models.get('main').id;
  return observeModels(models, {
    metrics,
    onEnd: (model, error) => {
      if (model.id === mainId) modelHealth.record(error?.kind);
    },
  });
}

/** Loads the SDK of OpenTelemetry only if it is used. */
async function openExporter(
  { tracing: { endpoint, capturesContent }, oracle }: Config,
  hostId: string,
): Promise<SpanExporter | undefined> {
  if (!endpoint) return undefined;
  const { createOtlpExporter } = await import('../observability/otlp.js');
  const version = readVersion();
  return createOtlpExporter({
    endpoint,
    capturesContent,
    serviceName: oracle.name,
    hostId,
    version,
  });
}

/** Builds what the routes need besides the turns. */
function wireRoutes(
  { config, authExcludedRoutes }: HostOptions,
  known: Pick<HostDeps, 'metrics' | 'holders' | 'cluster' | 'plugins' | 'hostEvents'>,
) {
  const { metrics, holders, cluster, hostEvents } = known;
  const { plugins } = known.plugins;
  return {
    facts: describeHost(config, plugins),
    origins: new OriginPolicy(config),
    publicRoutes: new PublicRoutes([
      ...plugins.flatMap(({ openRoutes }) => openRoutes),
      ...authExcludedRoutes,
    ]),
    surfaceRoutes: new SurfaceRoutes(plugins.flatMap(({ routes }) => routes)),
    bodyLimits: config,
    bodyBudget: new ByteBudget({
      maxBytes: config.bodiesLimit,
      maxBytesPerKey: config.bodiesLimit * BODIES_ADDRESS_SHARE,
    }),
    rateLimits: new RateLimits({
      ...config.rateLimits,
      metrics,
      holders,
      bus: cluster.bus,
      onLimited: (did) => hostEvents.recordLimited(did),
    }),
  };
}

function createReadiness(
  { store, cluster, plugins }: Pick<HostDeps, 'store' | 'cluster' | 'plugins'>,
  model: ModelHealth,
): ReadinessChecks {
  const probe = new WriteProbe(store);
  return new ReadinessChecks({
    probe,
    disk: store.disk,
    outage: store.outage,
    liveness: cluster.liveness,
    model,
    plugins: plugins.plugins.length,
  });
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

export function readVersion(): string {
  const path = new URL('../../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}

interface AuthDeps {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly oracle: OracleIdentity;
  readonly store: Store;
  readonly cluster: Cluster;
}

/** How tokens are verified. */
const createTokenRules = (
  { config, logger, metrics, oracle, store }: Omit<AuthDeps, 'cluster'>,
  resolver: DidResolver,
) => ({
  audience: oracle.did,
  resolver,
  revocations: { isRevoked: (cid: string) => store.revocations.has(cid) },
  spentTokens: store.singleUse,
  maxTtlSeconds: config.auth.maxTtlSeconds,
  onRejection: (purpose: TokenPurpose, fault: UcanError) => {
    metrics.count('sibyl_tokens_refused_total', { purpose, reason: fault.code });
    warnAboutMisuse(logger, fault);
  },
});

/** Builds authentication, and what signs in the name of the oracle. */
function wireAuth({ config, logger, metrics, oracle, store, cluster }: AuthDeps) {
  const resolver = createResolver(config);
  const tokenRules = createTokenRules({ config, logger, metrics, oracle, store }, resolver);
  const verifier = createVerifier(tokenRules);
  const { delegations, disk, callers } = store;
  const { bus } = cluster;
  const { allowDelegationLogin, loginMaxDays, callersAllow } = config.auth;
  const oracleDid = oracle.did;
  const shared = { oracleDid, verifier, bus, logger };
  const uses = { oracleDid, delegations, disk, logger, loginMaxDays };
  const presented = new PresentedDelegations(uses);
  const authority = new DelegatedAuthority({
    ...shared,
    minter: createMinter({ signer: oracle.signer }),
    resolver,
    delegations,
    presented,
    revocations: store.revocations,
  });
  const oracleAuthority = new OracleAuthority({
    signer: oracle.signer,
    resolver,
    verifierFor: (issuer) =>
      createVerifier({ ...tokenRules, singleUse: store.singleUse.of(issuer) }),
    logger,
  });
  const accessKeys = new AccessKeys({ verifier, authority, store, oracleDid });
  const login = { verifier, logger, metrics, allowDelegationLogin, presented, accessKeys };
  const { operators } = config.auth;
  const forOperators = createOperatorVerifier(tokenRules, { listed: operators, store, logger });
  const allowList = new CallerAllowList({
    listed: callersAllow && [...callersAllow, ...operators],
    callers,
    blocked: store.blockedUsers,
    bus,
    logger,
  });
  return {
    authenticator: new Authenticator(
      login,
      new Authenticator({ ...login, verifier: forOperators.verifier }),
    ),
    cachedLists: [forOperators.revocations, allowList],
    holders: new Holders({
      hasFinishedTurn: (owner, before) => store.usage.hasFinishedTurn(owner, before),
      now: store.now,
    }),
    presented,
    allowList,
    authority,
    verifier,
    rules: new UserRules({
      ...shared,
      store: store.rules,
      disk: store.disk,
      operator: config.turns.approvals,
    }),
    grants: new RunGrants({ verifier, grants: store.grants, allowList }),
    oracleAuthority,
    accessKeys,
    delegations: new DelegationService({ oracleDid, verifier, authority, presented, store }),
  };
}

/** Operators log in also while the store does not answer. */
function createOperatorVerifier(
  rules: ReturnType<typeof createTokenRules>,
  { store, ...known }: Pick<AuthDeps, 'store' | 'logger'> & { listed: readonly string[] },
) {
  const { maxTtlSeconds } = rules;
  const { revocations: stored, operators: added } = store;
  const revocations = new OutageRevocations({ ...known, stored, added, maxTtlSeconds });
  return { revocations, verifier: createVerifier({ ...rules, revocations }) };
}

/** A token made for a single call was presented as a delegation: the service that received it may have kept it. */
function warnAboutMisuse(logger: Logger, { code, detail, cid, issuer }: UcanError): void {
  if (code !== 'wrong_purpose' && code !== 'single_use') return;
  logger.warn(
    { reason: code, detail, cid, did: issuer },
    'an invocation was presented as a delegation',
  );
}

interface PluginDeps extends Omit<HostServices, 'publicUrl' | 'fetch' | 'llm' | 'models'> {
  readonly config: Config;
  readonly models: Models;
  /** Counts the model calls that plugins make outside of turns. */
  readonly meter: Meter;
}

/** Sets up the plugins with the services of the host. */
async function wirePlugins(
  selected: readonly SelectedPlugin[],
  { config, models, meter, ...services }: PluginDeps,
): Promise<LoadedPlugins> {
  const closing = new AbortController();
  const loaded = await loadPlugins(selected, {
    ...services,
    publicUrl: config.publicUrl,
    fetch: createPluginFetch(config),
    llm: createLlms({ modelFor: models.get, meter, signal: closing.signal }),
    models,
  });
  const close = async () => {
    closing.abort(new Error('The host is closing'));
    await loaded.close();
  };
  return { ...loaded, close };
}

/** Resolves the DIDs of callers and services. */
export function createResolver({ chain, outgoingAllow }: Config): DidResolver {
  const methods = {
    key: createDidKeyResolver(),
    ixo: isChainConfigured(chain) ? cacheResolver(createIxoResolver(chain)) : undefined,
    web: cacheResolver(createWebResolver(outgoingAllow)),
  };
  return createDidResolver({ methods });
}

const cacheResolver = (resolver: DidResolver) =>
  createCachedResolver({ resolver, clock: systemClock });

const isChainConfigured = ({ restUrl, blocksyncUrl }: Config['chain']) =>
  restUrl !== undefined || blocksyncUrl !== undefined;

/** The operator chose these two addresses, so they may be inside the operator's network. */
function createIxoResolver({ restUrl, blocksyncUrl }: Config['chain']): DidResolver {
  const chosen = [restUrl, blocksyncUrl].filter((url) => url !== undefined);
  const fetch = createSafeFetch({ allow: chosen.map((url) => new URL(url).host) });
  return createDidIxoResolver({ chainRestUrl: restUrl, blocksyncUrl, fetch });
}

/** A did:web names an address that a caller chose: only the public internet is allowed, plus OUTGOING_ALLOW. */
const createWebResolver = (allow: readonly string[]): DidResolver =>
  createDidWebResolver({ fetch: createSafeFetch({ allow }), allowHttp: allow.length > 0 });

/** The fetch of plugins: it reaches the public internet, plus OUTGOING_ALLOW, and passes the trace on. */
export function createPluginFetch({ outgoingAllow }: Config): SafeFetch {
  const fetch = createSafeFetch({ allow: outgoingAllow });
  return (url, init) => {
    const traceparent = findScope()?.traceparent;
    if (!traceparent) return fetch(url, init);
    const headers = new Headers(init?.headers);
    if (!headers.has('traceparent')) headers.set('traceparent', traceparent);
    return fetch(url, { ...init, headers });
  };
}
