import { readFileSync } from 'node:fs';
import type { OraclePlugin } from '@sibyl/plugin-kit';
import {
  type AuthExcludedRoute,
  type LoadedPlugin,
  PublicRoutes,
  SurfaceRoutes,
} from '@sibyl/plugin-kit/host';
import type { HostReport } from '@sibyl/protocol';
import { ByteBudget, settlesWithin } from '@sibyl/server-kit';
import {
  createMinter,
  createVerifier,
  type DidResolver,
  type TokenPurpose,
  type UcanError,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import { createLlms } from '../agent/model-call.js';
import { AccessKeys } from '../auth/access-keys.js';
import { Authenticator, PresentedDelegations } from '../auth/authenticator.js';
import { CallerAllowList } from '../auth/caller-allow-list.js';
import { DelegatedAuthority } from '../auth/delegated-authority.js';
import { DelegationService } from '../auth/delegations.js';
import { Operators, OutageRevocations } from '../auth/operators.js';
import { loadOracleIdentity, OracleAuthority } from '../auth/oracle-identity.js';
import { Holders, RateLimits } from '../auth/rate-limits.js';
import { RunGrants } from '../auth/run-grants.js';
import { UserRules } from '../auth/user-rules.js';
import { type Cluster, joinCluster } from '../bus/cluster.js';
import { ClusterEventBus } from '../bus/cluster-event-bus.js';
import { type EventBus, MemoryEventBus } from '../bus/event-bus.js';
import { PendingClientCalls } from '../bus/pending-client-calls.js';
import { SessionChanges } from '../bus/session-changes.js';
import { SharedCalls } from '../bus/shared-calls.js';
import { SharedPresence, type SocketPresence, solePresence } from '../bus/socket-presence.js';
import type { Config } from '../config/config.js';
import { openFiles } from '../files/open-files.js';
import { SentFiles } from '../files/sent-files.js';
import { DailyCharge } from '../files/upload-limits.js';
import { HostFacts } from '../http/discovery.controller.js';
import { ReadinessChecks } from '../http/health.controller.js';
import { ReplySender, StreamSlots } from '../http/replies.js';
import { OriginPolicy } from '../http/ucan-guard.js';
import { createEmbeddings } from '../models/embedding-model.js';
import { createModels } from '../models/models.js';
import { createFailureReport, ModelHealth, observeModels } from '../models/observed-models.js';
import { Metrics } from '../observability/metrics.js';
import type { SpanExporter } from '../observability/spans.js';
import { HostEvents, HostReports } from '../operators/host-reports.js';
import { OperatorService } from '../operators/operator-service.js';
import { Erasure } from '../own-data/erasure.js';
import { Exports } from '../own-data/exports.js';
import { ImportWriter, type RowImporter } from '../own-data/import-writer.js';
import { Imports } from '../own-data/imports.js';
import { Retention } from '../own-data/retention.js';
import { loadPlugins } from '../plugins/load-plugins.js';
import type { PluginStatus, SelectedPlugin } from '../plugins/select-plugins.js';
import type { TurnServices } from '../plugins/surface.js';
import { ConnectionRegistry } from '../sockets/connections.js';
import { openStore, WriteProbe } from '../store/store.js';
import { StoreOutage } from '../store/store-errors.js';
import { Approvals } from '../turns/answer/approval-decisions.js';
import { PausedTurns } from '../turns/answer/paused-turns.js';
import { Hooks } from '../turns/plugins/hooks.js';
import { FeedbackService } from '../turns/read/feedback.js';
import { RunFeeds } from '../turns/read/run-feeds.js';
import { MissedEvents, RunReader } from '../turns/read/run-reader.js';
import { ModelBudget } from '../turns/run/model-limits.js';
import { RunExecutor } from '../turns/run/run-executor.js';
import { Takeover } from '../turns/run/takeover.js';
import { Titles } from '../turns/run/titles.js';
import { TurnSetup } from '../turns/run/turn-setup.js';
import { Gates } from '../turns/start/gates.js';
import { SessionsService } from '../turns/start/sessions.js';
import { TurnAccess } from '../turns/start/turn-access.js';
import { type TurnRequest, toGateRequest } from '../turns/turn-request.js';
import { Turns } from '../turns/turns.js';
import { createPluginFetch, createResolver } from './outgoing.js';
import { traceBus, traceDatabase } from './traced-services.js';

export interface HostOptions {
  readonly config: Config;
  readonly logger: Logger;
  readonly selected: readonly SelectedPlugin[];
  /** Plugins that are not loaded. */
  readonly unloaded: readonly OraclePlugin[];
  readonly status: readonly PluginStatus[];
  readonly authExcludedRoutes: readonly AuthExcludedRoute[];
}

/** The objects of a host, all but Nest and the socket server, which need its HTTP server. */
export type Services = Awaited<ReturnType<typeof buildServices>>;

/**
 * Builds the objects of a host. Each function below adds some to those that it receives, in the order in which they need each
 * other. If one fails, what was opened before it is closed.
 */
export async function buildServices(options: HostOptions) {
  const opened = await openHostStore(options);
  try {
    const withModels = addModels(await addObservers(opened));
    const withCallers = addCallers(addTokens(withModels));
    // Plugins contribute to turns, and may start turns themselves once these are built.
    const turnsReady = Promise.withResolvers<TurnServices>();
    const withPlugins = await addPlugins(withCallers, turnsReady.promise);
    try {
      const withTurns = addReaders(addTurns(addEvents(withPlugins)));
      turnsReady.resolve({ ...withTurns, files: withTurns.sentFiles });
      return addOperators(addOwnData(addHttp(withTurns)));
    } catch (error) {
      await withPlugins.closePlugins();
      throw error;
    }
  } catch (error) {
    await opened.store.close().finally(() => opened.cluster.close());
    throw error;
  }
}

/** Loads the oracle's key, joins the other hosts and opens the store that they share. */
async function openHostStore(options: HostOptions) {
  const { config, logger } = options;
  const oracle = await loadOracleIdentity(config);
  const joined = await joinCluster({ ...config, logger });
  const isTraced = config.tracing.endpoint !== undefined;
  const cluster: Cluster = isTraced ? { ...joined, bus: traceBus(joined.bus) } : joined;
  const outage = new StoreOutage(logger);
  try {
    const store = await openStore({
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
      ...(isTraced && { observe: traceDatabase }),
    });
    return { ...options, oracle, cluster, store };
  } catch (error) {
    await cluster.close();
    throw error;
  }
}

async function addObservers(host: Awaited<ReturnType<typeof openHostStore>>) {
  return {
    ...host,
    metrics: new Metrics(),
    /** Undefined if spans are not exported. */
    exporter: await openExporter(host.config, host.cluster.hostId),
    hostEvents: new HostEvents(),
  };
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

/** The models, whose calls are observed, and the tokens that they may use. */
function addModels(host: Awaited<ReturnType<typeof addObservers>>) {
  const { config, logger, metrics, store, hostEvents } = host;
  const report = createFailureReport(logger, metrics);
  const unobserved = createModels(config.models, {
    onFailure: (model, error, isRetried) => {
      report(model, error, isRetried);
      hostEvents.recordModelFailure(model, error);
    },
  });
  const modelHealth = new ModelHealth();
  const mainId = unobserved.get('main').id;
  const models = observeModels(unobserved, {
    metrics,
    onEnd: (model, error) => {
      if (model.id === mainId) modelHealth.record(error?.kind);
    },
  });
  const { tokensPerDay } = config.turns;
  const budget = new ModelBudget({ usage: store.modelUsage, tokensPerDay, logger, metrics });
  const { embedding } = config.models;
  const embeddings =
    embedding &&
    createEmbeddings({
      config: embedding,
      check: () => budget.check(),
      onUse: (use) => budget.add(use),
    });
  return { ...host, modelHealth, models, budget, embeddings };
}

/** What reads the tokens of callers, keeps what they delegated, and signs in the name of the oracle. */
function addTokens(host: ReturnType<typeof addModels>) {
  const { config, logger, oracle, store, cluster } = host;
  const { did: oracleDid, signer } = oracle;
  const { delegations: stored, revocations, singleUse, disk } = store;
  const resolver = createResolver(config);
  const tokenRules = createTokenRules(host, resolver);
  const verifier = createVerifier(tokenRules);
  const { loginMaxDays } = config.auth;
  const presented = new PresentedDelegations({
    oracleDid,
    delegations: stored,
    disk,
    logger,
    loginMaxDays,
  });
  const authority = new DelegatedAuthority({
    oracleDid,
    verifier,
    minter: createMinter({ signer }),
    resolver,
    delegations: stored,
    presented,
    revocations,
    bus: cluster.bus,
    logger,
  });
  return {
    ...host,
    tokenRules,
    verifier,
    presented,
    authority,
    delegations: new DelegationService({ oracleDid, verifier, authority, presented, store }),
    accessKeys: new AccessKeys({ verifier, authority, store, oracleDid }),
    ucan: new OracleAuthority({
      signer,
      resolver,
      verifierFor: (issuer) => createVerifier({ ...tokenRules, singleUse: singleUse.of(issuer) }),
      logger,
    }),
  };
}

/** How tokens are verified. */
const createTokenRules = (
  { config, logger, metrics, oracle, store }: ReturnType<typeof addModels>,
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

/** A token made for a single call was presented as a delegation: the service that received it may have kept it. */
function warnAboutMisuse(logger: Logger, { code, detail, cid, issuer }: UcanError): void {
  if (code !== 'wrong_purpose' && code !== 'single_use') return;
  logger.warn(
    { reason: code, detail, cid, did: issuer },
    'an invocation was presented as a delegation',
  );
}

/** Who may call, and what the turns of a caller may do. */
function addCallers(host: ReturnType<typeof addTokens>) {
  const { config, logger, metrics, oracle, store, cluster } = host;
  const { tokenRules, verifier, presented, accessKeys } = host;
  const { bus } = cluster;
  const { allowDelegationLogin, callersAllow, operators: listed } = config.auth;
  const { maxTtlSeconds } = tokenRules;
  const { revocations: stored, operators: added } = store;
  const outageRevocations = new OutageRevocations({ stored, listed, added, maxTtlSeconds, logger });
  const login = { verifier, logger, metrics, allowDelegationLogin, presented, accessKeys };
  // Operators log in also while the store does not answer.
  const forOperators = new Authenticator({
    ...login,
    verifier: createVerifier({ ...tokenRules, revocations: outageRevocations }),
  });
  const allowList = new CallerAllowList({
    listed: callersAllow && [...callersAllow, ...listed],
    callers: store.callers,
    blocked: store.blockedUsers,
    bus,
    logger,
  });
  return {
    ...host,
    outageRevocations,
    authenticator: new Authenticator(login, forOperators),
    allowList,
    holders: new Holders({
      hasFinishedTurn: (owner, before) => store.usage.hasFinishedTurn(owner, before),
      now: store.now,
    }),
    rules: new UserRules({
      oracleDid: oracle.did,
      verifier,
      store: store.rules,
      disk: store.disk,
      bus,
      logger,
      operator: config.turns.approvals,
    }),
    grants: new RunGrants({ verifier, grants: store.grants, allowList }),
  };
}

/** Sets up the plugins with the services of the host; what files contribute to turns is one of them. */
async function addPlugins(host: ReturnType<typeof addCallers>, turns: Promise<TurnServices>) {
  const { config, logger, oracle, store, cluster, models, budget, embeddings } = host;
  const { authority, grants, holders, ucan } = host;
  const { bus, liveness } = cluster;
  const settings = config.files;
  const files = openFiles({ settings, store, logger, liveness, embeddings });
  const closing = new AbortController();
  const loaded = await loadPlugins([...host.selected, files.plugin], {
    logger,
    oracle,
    publicUrl: config.publicUrl,
    store,
    fetch: createPluginFetch(config),
    ucan,
    llm: createLlms({ modelFor: models.get, meter: budget, signal: closing.signal }),
    embeddings,
    models,
    bus,
    liveness,
    holders,
    authority,
    grants,
    turns,
  });
  return {
    ...host,
    files: files.service,
    uploads: files.uploads,
    sentFiles: new SentFiles({ service: files.service, fetch: createPluginFetch(config) }),
    plugins: loaded.plugins,
    closePlugins: async () => {
      closing.abort(new Error('The host is closing'));
      await loaded.close();
    },
  };
}

function addEvents(host: Awaited<ReturnType<typeof addPlugins>>) {
  return {
    ...host,
    changes: new SessionChanges(host.cluster.bus),
    connections: new ConnectionRegistry(host.config.sockets),
    ...connectSockets(host),
  };
}

/** What connects turns and sockets, also those of other hosts if there may be some. */
function connectSockets(host: Awaited<ReturnType<typeof addPlugins>>): {
  readonly events: EventBus;
  readonly presence: SocketPresence;
  readonly pendingCalls: PendingClientCalls;
} {
  const { config, logger, cluster, store } = host;
  const timeoutMs = config.sockets.callTimeoutMs;
  const { sockets: directory } = store;
  if (!directory)
    return {
      events: new MemoryEventBus(),
      presence: solePresence,
      pendingCalls: new PendingClientCalls({ timeoutMs }),
    };
  const { bus, liveness } = cluster;
  const shared = new SharedCalls({ directory, bus, liveness, logger });
  const pendingCalls = new PendingClientCalls({ timeoutMs, shared });
  const onRemoteCall = pendingCalls.addRemote.bind(pendingCalls);
  const isCallOpen = pendingCalls.has.bind(pendingCalls);
  return {
    events: new ClusterEventBus({ directory, bus, liveness, onRemoteCall, isCallOpen, logger }),
    presence: new SharedPresence({ directory, bus, liveness, logger }),
    pendingCalls,
  };
}

/** What starts and runs turns. */
function addTurns(host: ReturnType<typeof addEvents>) {
  const { config, logger, metrics, exporter, oracle, cluster, store, models, budget } = host;
  const { plugins, grants, changes, events, holders, uploads } = host;
  const settings = config.turns;
  const { maxMs, maxPaused, storeWaitMs } = settings;
  const { sessions, messages, disk } = store;
  const titles = new Titles({ sessions, changes, model: models.get('utility'), logger });
  const hooks = new Hooks(logger, settings.hookTimeoutMs, metrics);
  const gates = new Gates({ plugins, hooks, budget, logger });
  const access = new TurnAccess(host);
  const { checksEvents } = config.sockets;
  const executor = new RunExecutor({
    setup: new TurnSetup({ ...host, access, hooks, checksEvents, settings }),
    titles,
    grants,
    events,
    logger,
    metrics,
    exporter,
    hostId: cluster.hostId,
    agentName: oracle.name,
    mainModel: models.get('main').id,
    usage: store.usage,
    now: store.now,
    limits: { ms: maxMs, paused: maxPaused, storeWaitMs },
  });
  const turns = new Turns({
    ...host,
    gates,
    access,
    executor,
    onFlush: (runs, seconds) => metrics.countFlush(runs, seconds),
    settings,
  });
  const maxPerUser = config.sessionsPerUser;
  return {
    ...host,
    titles,
    gates,
    access,
    turns,
    sessions: new SessionsService({
      sessions,
      messages,
      oracle,
      turns,
      events,
      changes,
      maxPerUser,
      disk,
      charge: async (owner, bytes) => uploads.charge(await holders.find(owner), bytes),
    }),
  };
}

const SETTLE_MS = 2_000;

/** What reads runs, continues paused ones and takes over those of other hosts. */
function addReaders(host: ReturnType<typeof addTurns>) {
  const { config, logger, metrics, cluster, store, models } = host;
  const { gates, access, turns, events, changes } = host;
  const { runs, messages, answerDetails: details } = store;
  const { streamStallMs, streamsPerUser, resumesTurns } = config.turns;
  const feeds = new RunFeeds(cluster.bus);
  const reader = new RunReader(turns, store, feeds);
  const paused = new PausedTurns(store, turns);
  const takeover = new Takeover({
    runs,
    turns,
    paused,
    cluster,
    events,
    logger,
    resumes: resumesTurns,
    onTakeover: (outcome) => metrics.count('sibyl_takeovers_total', { outcome }),
    onClosed: (run) => {
      feeds.announce(run.runId);
      cluster.bus.send('others', 'run-changed', { owner: run.owner, runId: run.runId });
      changes.publish(run, 'turn_ended');
    },
  });
  const slots = new StreamSlots(streamsPerUser);
  const assertAdmitted = async (request: TurnRequest) => {
    const account = await gates.admit(toGateRequest(request, models));
    // The turn needs what this has set aside.
    await settlesWithin(SETTLE_MS, account.settle());
  };
  return {
    ...host,
    reader,
    paused,
    approvals: new Approvals({ ...host, assertAdmitted }),
    takeover,
    slots,
    missed: new MissedEvents(turns, runs),
    feedback: new FeedbackService({ store, events }),
    replies: new ReplySender({ reader, access, messages, details, slots, streamStallMs, logger }),
  };
}

/** The part of BODIES_LIMIT that one address may use. */
const BODIES_ADDRESS_SHARE = 1 / 4;

/** What the routes need besides the turns. */
function addHttp(host: ReturnType<typeof addReaders>) {
  const { config, metrics, cluster, store, holders, plugins, hostEvents } = host;
  return {
    ...host,
    facts: describeHost(config, plugins),
    readiness: new ReadinessChecks({
      probe: new WriteProbe(store),
      disk: store.disk,
      outage: store.outage,
      liveness: cluster.liveness,
      model: host.modelHealth,
      plugins: plugins.length,
    }),
    origins: new OriginPolicy(config),
    publicRoutes: new PublicRoutes([
      ...plugins.flatMap(({ openRoutes }) => openRoutes),
      ...host.authExcludedRoutes,
    ]),
    surfaceRoutes: new SurfaceRoutes(plugins.flatMap(({ routes }) => routes)),
    bodyBudget: new ByteBudget({
      maxBytes: config.bodiesLimit,
      maxBytesPerKey: config.bodiesLimit * BODIES_ADDRESS_SHARE,
    }),
    rateLimits: new RateLimits({
      ...config.rateLimits,
      metrics,
      holders,
      // Only one host can use SQLite.
      bus: config.databaseUrl === undefined ? undefined : cluster.bus,
      onLimited: (did) => hostEvents.recordLimited(did),
    }),
  };
}

function describeHost({ auth }: Config, plugins: readonly LoadedPlugin[]): HostFacts {
  const features = plugins.map(({ name }) => name);
  if (auth.callersAllow) features.push('invitations');
  const shared = Object.assign({}, ...plugins.map((plugin) => plugin.shared));
  return new HostFacts(readVersion(), features, shared);
}

function readVersion(): string {
  const path = new URL('../../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}

/** What serves the routes below `/me`. */
function addOwnData(host: ReturnType<typeof addHttp>) {
  const { config, oracle, cluster, store, plugins, files } = host;
  const { bus, liveness } = cluster;
  const importers = new Map(plugins.flatMap(listImporters));
  const skippedTables = host.unloaded.flatMap(({ importedTables = [] }) => importedTables);
  const imports = new Imports({
    ...host,
    store: store.imports,
    createWriter: ({ holder, ...job }) =>
      new ImportWriter({
        owner: job.owner,
        store: store.imports.forJob(job),
        rooms: store.rooms,
        oracle,
        maxSessions: config.sessionsPerUser,
        openCharge: () => new DailyCharge(host.uploads, holder),
        importers,
        skippedTables,
      }),
    disk: store.dataDisk,
    liveness,
    dataDir: config.dataDir,
    maxBytes: config.importLimit,
  });
  bus.on('user-erased', ({ did }) => void imports.cancel(did));
  return {
    ...host,
    exports: new Exports({ rows: store.ownerRows, oracle, plugins, files }),
    imports,
    retention: new Retention({ ...host, days: config.retentionDays }),
    erasure: new Erasure({ ...host, oracleDid: oracle.did, bus, liveness, imports }),
  };
}

/** Plugins import the rows of their tables themselves: only they know their limits. */
function listImporters({ plugin, services }: LoadedPlugin): [string, RowImporter][] {
  return (plugin.importedTables ?? []).map((table) => [
    table,
    async (owner, rows) => {
      const counts = (await plugin.importRows?.({ owner, table, rows }, services)) ?? 0;
      return typeof counts === 'number' ? { stored: counts, refused: 0 } : counts;
    },
  ]);
}

/** Users with open sockets that operators see, those with most first. */
const LISTED_SOCKET_USERS = 100;

/** What serves the routes of operators. */
function addOperators(host: ReturnType<typeof addOwnData>) {
  const { config, logger, cluster, store, allowList, outageRevocations, connections } = host;
  const listed = config.auth.operators;
  const operators = new Operators({ listed, stored: store.operators, allowList, logger });
  const hostReports = new HostReports({
    cluster,
    // On SQLite there is no other host.
    hosts: store.sockets && store.hosts,
    now: store.now,
    describe: createReport(host),
    logger,
  });
  return {
    ...host,
    operators,
    hostReports,
    operatorService: new OperatorService({
      ...host,
      hosts: hostReports,
      listSocketUsers: async () =>
        (await store.sockets?.listUsers(LISTED_SOCKET_USERS)) ?? connections.listUsers(),
      operators: listed,
    }),
    /** What guards have to know while the store does not answer. */
    cachedLists: [outageRevocations, allowList, operators],
  };
}

function createReport(host: ReturnType<typeof addOwnData>): () => Promise<HostReport> {
  const { cluster, store, facts, readiness, turns, connections, replies, hostEvents } = host;
  const startedAt = new Date().toISOString();
  const describeOutage = (): Pick<HostReport, 'storeOutage'> => {
    const outage = store.outage?.current;
    return outage ? { storeOutage: { ...outage, since: outage.since.toISOString() } } : {};
  };
  return async () => ({
    version: facts.version,
    startedAt,
    readiness: await readiness.check(),
    ...describeOutage(),
    turns: turns.count(),
    sockets: connections.openSockets,
    streams: replies.streamCount,
    busLagMs: cluster.bus.figures.lagMs,
    memoryBytes: process.memoryUsage.rss(),
    ...hostEvents.describe(),
  });
}
