import 'reflect-metadata';
import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { LanguageModelV4 } from '@ai-sdk/provider';
import type { DynamicModule, LoggerService, Type } from '@nestjs/common';
import type { CorsOptionsDelegate } from '@nestjs/common/interfaces/external/cors-options.interface.js';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { Diagnosis, OraclePlugin, PluginManifestInput, Tool } from '@sibyl/plugin-kit';
import {
  type AuthExcludedRoute,
  type Feature,
  hookChecks,
  type SurfaceRoutes,
} from '@sibyl/plugin-kit/host';
import { corsExposedHeaders, corsMethods, corsRequestHeaders } from '@sibyl/protocol';
import { ConfigError, type ConfigIssue, readEnvironment } from '@sibyl/server-kit/environment';
import type { Express, Request } from 'express';
import type { Logger } from 'pino';
import { type Config, checkConfig, readFeatures } from '../config/config.js';
import { addLanguageModels } from '../config/models-config.js';
import {
  accessLog,
  anonymousLimit,
  answerOptions,
  assertOneHost,
  HttpAdapter,
  listRoutes,
  requestId,
  requestScope,
  securityHeaders,
  warnAboutProxy,
} from '../http/express.js';
import { createLogger, withScopeIds } from '../observability/logger.js';
import { serveMetrics } from '../observability/metrics.js';
import { assertDistinctRoutes, toModuleError } from '../plugins/load-plugins.js';
import {
  describeStatus,
  type PluginStatus,
  selectPlugins,
  summarizePlugins,
} from '../plugins/select-plugins.js';
import { SocketServer } from '../sockets/socket-server.js';
import type { InvitedCaller } from '../store/caller-store.js';
import { startIndexing } from '../store/search/search-store.js';
import { AppModule } from './app.module.js';
import { bundledPlugins } from './bundled-plugins.js';
import { startCleanup } from './cleanup.js';
import { whenDatabaseAnswers } from './database-wait.js';
import { addGauges } from './gauges.js';
import { diagnosePlugin } from './operator-tasks.js';
import { createPluginFetch } from './outgoing.js';
import { serveApiDocument } from './serve-openapi.js';
import { buildServices, type HostOptions, type Services } from './services.js';
import { ShutdownStages, shutdownShares } from './shutdown.js';
import { OwnDidCheck, warnAboutOpenAccess } from './startup-checks.js';

/** What an application states in code; each option overrides the environment variable it names. */
export interface OracleAppOptions {
  /** The model that answers: an id such as `openai/gpt-…`, or a model of the AI SDK. Overrides MODEL. */
  readonly model?: string | LanguageModelV4;
  /** The model for titles and summaries. Overrides MODEL_SMALL. */
  readonly smallModel?: string | LanguageModelV4;
  /** What the agent should know and how it should behave. Overrides ORACLE_INSTRUCTIONS. */
  readonly instructions?: string;
  /** The oracle's name. Overrides ORACLE_NAME. */
  readonly name?: string;
  /** 0 for any free port. Overrides PORT. */
  readonly port?: number;
  /** The address to listen on. Overrides HOST. */
  readonly host?: string;
  /** PostgreSQL connection string, instead of SQLite in the data directory. Overrides DATABASE_URL. */
  readonly store?: string;
  /** Where the SQLite file and the generated key are. Overrides DATA_DIR. */
  readonly dataDir?: string;
  /** Tools without a plugin; the agent has them in every turn. */
  readonly tools?: readonly Tool[];
  /** Default: `process.env`. Read once. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly logger?: Logger;
  /** Plugins besides the bundled ones. */
  readonly plugins?: readonly OraclePlugin[];
  /** Replaces the plugins that come with the host; `[]` for none. */
  readonly bundled?: readonly OraclePlugin[];
  /** Which plugins load, by name; default `auto`. FEATURES in the environment takes precedence. */
  readonly features?: Readonly<Record<string, Feature>>;
  /** Replaces fields of the manifest of a plugin, by plugin name. */
  readonly manifestOverrides?: Readonly<Record<string, Partial<PluginManifestInput>>>;
  readonly nestModules?: readonly (Type | DynamicModule)[];
  /** Routes open to callers without a UCAN, besides those of the plugins. */
  readonly authExcludedRoutes?: readonly AuthExcludedRoute[];
}

/** A host that is ready to listen. */
export interface OracleApp {
  /** The oracle's DID: the audience of every token for it. */
  readonly did: string;
  readonly nest: NestExpressApplication;
  readonly plugins: {
    /** Every plugin, whether it is loaded, and if not, why. */
    status(): readonly PluginStatus[];
  };
  /** Users who redeemed an invitation. */
  readonly callers: {
    list(): Promise<readonly InvitedCaller[]>;
    /** Ends the access of a user at once; returns whether there was one. */
    remove(did: string): Promise<boolean>;
  };
  readonly logger: Logger;
  /** Starts serving; returns the address. */
  listen(): Promise<string>;
  /**
   * Waits for running turns, ten seconds by default; turns that are still running then are stored as interrupted.
   * Takes at most 15 s longer than that.
   */
  close(timeoutMs?: number): Promise<void>;
}

/** How long running turns and requests may take to finish once the host is closing. */
const CLOSE_TIMEOUT_MS = 10_000;
/** The most that each of the last writes, and closing the store, may take. */
const LAST_WRITE_TIMEOUT_MS = 5_000;
/** How long before its deadline the HTTP server closes connections that are still open. */
const FORCED_CLOSE_MARGIN_MS = 500;

/**
 * Builds the host: its store, plugins and routes. All configuration errors are thrown as one ConfigError. While PostgreSQL
 * cannot be reached, it tries again for a minute, and answers 503 on the port of the host.
 */
export async function createOracleApp(options: OracleAppOptions = {}): Promise<OracleApp> {
  const { nestModules = [], authExcludedRoutes = [] } = options;
  const { config, ...chosen } = readOptions(options);
  const logger = withScopeIds(options.logger ?? (await createLogger(config)));
  const host = { config, logger, ...chosen, authExcludedRoutes };
  return whenDatabaseAnswers(() => startApp(host, nestModules), host);
}

async function startApp(
  options: HostOptions,
  nestModules: readonly (Type | DynamicModule)[],
): Promise<OracleApp> {
  const services = await buildServices(options);
  const { logger, plugins, takeover, hostReports } = services;
  try {
    addGauges(services);
    await takeover.start();
    const modules = plugins.flatMap((plugin) => plugin.nestModules);
    const nest = await createNest(services, [...modules, ...nestModules]).catch((error) => {
      throw toModuleError(error, plugins);
    });
    logger.info(summarizePlugins(options.status));
    takeover.watch();
    hostReports.start();
    await Promise.all(services.cachedLists.map((list) => list.start()));
    return createApp(nest, services);
  } catch (error) {
    // The process may continue after a failed start, so release everything.
    await takeover.close();
    await services.turns.close(0, LAST_WRITE_TIMEOUT_MS);
    await hostReports.close();
    closeLists(services);
    services.events.close();
    await services.closePlugins();
    await services.store.close();
    await services.cluster.close();
    throw error;
  }
}

/** Which plugins would load, and why others would not. Starts nothing. */
export const describePlugins = (options: OracleAppOptions = {}): readonly PluginStatus[] =>
  readOptions(options).status;

/** Checks the services that the plugins depend on; starts none of them. */
export async function diagnosePlugins(
  options: OracleAppOptions = {},
): Promise<readonly Diagnosis[]> {
  const { config, selected } = readOptions(options);
  const fetch = createPluginFetch(config);
  return (await Promise.all(selected.map((plugin) => diagnosePlugin(plugin, fetch)))).flat();
}

/** Checks the environment and the plugins together, so that all errors are reported at once. */
function readOptions(options: OracleAppOptions) {
  const env = { ...readEnvironment(options.env), ...toVariables(options) };
  const checked = checkConfig(env);
  const bundled = options.bundled ?? bundledPlugins;
  const plugins = [
    ...bundled,
    ...(options.plugins ?? []),
    ...(options.tools ? [createToolsPlugin(options.tools)] : []),
  ];
  const { selected, off, issues } = selectPlugins({
    plugins,
    bundled: bundled.length,
    features: { ...options.features, ...readFeatures(env) },
    manifestOverrides: options.manifestOverrides ?? {},
    env,
  });
  const allIssues = [
    ...(checked.issues ?? []),
    ...issues,
    ...checkExcludedRoutes(options),
    ...checkNames(options),
  ];
  if (!checked.config || allIssues.length > 0) throw new ConfigError('host', allIssues);
  const config = useModels(checked.config, options);
  const unloaded = plugins.filter(({ name }) => off.has(name));
  return { config, selected, unloaded, status: describeStatus(plugins, { off }) };
}

const OPTIONS: Readonly<Record<keyof OracleAppOptions, true>> = {
  model: true,
  smallModel: true,
  instructions: true,
  name: true,
  port: true,
  host: true,
  store: true,
  dataDir: true,
  tools: true,
  env: true,
  logger: true,
  plugins: true,
  bundled: true,
  features: true,
  manifestOverrides: true,
  nestModules: true,
  authExcludedRoutes: true,
};

/** A misspelled option would have no effect. */
const checkNames = (options: OracleAppOptions): ConfigIssue[] =>
  Object.keys(options)
    .filter((name) => !Object.hasOwn(OPTIONS, name))
    .map((name) => ({
      subject: name,
      problem: 'createOracleApp has no such option',
      remedy: `Use one of ${Object.keys(OPTIONS).join(', ')}; variables belong in env`,
    }));

function checkExcludedRoutes({ authExcludedRoutes = [] }: OracleAppOptions): ConfigIssue[] {
  const problem = hookChecks.openRoutes(authExcludedRoutes);
  if (problem === undefined) return [];
  return [{ subject: 'authExcludedRoutes', problem, remedy: 'Correct this option' }];
}

/** The options as the environment variables they override. */
function toVariables(options: OracleAppOptions): Record<string, string> {
  const { model, smallModel, instructions, name, port, host, store, dataDir } = options;
  const variables = {
    MODEL: typeof model === 'string' ? model : undefined,
    MODEL_SMALL: typeof smallModel === 'string' ? smallModel : undefined,
    ORACLE_INSTRUCTIONS: instructions,
    ORACLE_NAME: name,
    PORT: port?.toString(),
    HOST: host,
    DATABASE_URL: store,
    DATA_DIR: dataDir,
  };
  return Object.fromEntries(
    Object.entries(variables).flatMap(([key, value]) =>
      value === undefined ? [] : [[key, value]],
    ),
  );
}

/** Puts the models of the AI SDK that the options contain in place of those of the environment. */
function useModels(config: Config, { model, smallModel }: OracleAppOptions): Config {
  const main = typeof model === 'object' ? model : undefined;
  const small = typeof smallModel === 'object' ? smallModel : undefined;
  if (!main && !small) return config;
  return { ...config, models: addLanguageModels(config.models, main, small) };
}

const createToolsPlugin = (tools: readonly Tool[]): OraclePlugin => ({
  name: 'app-tools',
  version: '1.0.0',
  manifest: {
    title: 'Tools',
    summary: 'Tools of this application.',
    whenToUse: ['one of its tools fits'],
    category: 'app',
    visibility: 'silent',
  },
  getTools: () => tools,
});

async function createNest(
  services: Services,
  modules: readonly (Type | DynamicModule)[],
): Promise<NestExpressApplication> {
  const { config, logger } = services;
  const nest = await NestFactory.create<NestExpressApplication>(
    AppModule.create(services, modules),
    new HttpAdapter({
      stallMs: config.turns.streamStallMs,
      onError: (err) => logger.error({ err }, 'stream of a plugin failed'),
    }),
    { logger: new NestLog(logger), bodyParser: false, abortOnError: false },
  );
  try {
    useMiddlewares(nest, services);
    serveApiDocument(nest, services);
    await nest.init();
    assertDistinctRoutes(listRoutes(nest.getHttpAdapter().getInstance()), services.plugins);
    return nest;
  } catch (error) {
    // So that initialized modules of plugins can release what they hold.
    await nest.close().catch((err) => logger.warn({ err }, 'closing after a failed start failed'));
    throw error;
  }
}

function createApp(nest: NestExpressApplication, services: Services): OracleApp {
  const { config, logger, oracle, store, allowList } = services;
  const stopCleanup = startCleanup(services, config);
  const stopIndexing = startIndexing(store.search, logger);
  const sockets = serveSockets(nest, services);
  const ownDid = new OwnDidCheck(config, oracle, logger);
  let metricsServer: Server | undefined;
  const close = async (timeoutMs?: number) => {
    logger.info('stopping');
    services.readiness.drain();
    const background = Promise.all([stopCleanup(), stopIndexing()]);
    services.changes.close();
    const serving = { nest, sockets, background, metricsServer: () => metricsServer };
    await closeHost(services, serving, timeoutMs);
  };
  return {
    did: oracle.did,
    nest,
    plugins: { status: () => services.status },
    callers: {
      list: () => store.callers.list(),
      remove: (did) => allowList.remove(did),
    },
    logger,
    async listen() {
      const { host, port, metricsPort } = config;
      try {
        await ownDid.beforeListening();
        if (metricsPort !== undefined)
          metricsServer = await serveMetrics(services.metrics, metricsPort, host);
        await nest.listen(port, host);
      } catch (error) {
        await close();
        throw error;
      }
      warnAboutOpenAccess(config, logger);
      for (const text of config.ignored) logger.warn(text);
      void ownDid.onceListening();
      const url = formatAddress(nest.getHttpServer(), host);
      announce(url, services);
      return url;
    },
    close,
  };
}

/** Closes everything in order; a stage that takes too long is abandoned. */
async function closeHost(
  services: Services,
  serving: {
    readonly nest: NestExpressApplication;
    readonly sockets: SocketServer;
    /** Settles once cleanup and indexing write nothing more. */
    readonly background: Promise<unknown>;
    readonly metricsServer: () => Server | undefined;
  },
  timeoutMs = CLOSE_TIMEOUT_MS,
): Promise<void> {
  const { turns, titles, gates, store, cluster } = services;
  const closing = new ShutdownStages(shutdownShares(timeoutMs), services.logger);
  let hasEnded = false;
  const stopping = services.takeover.close();
  const closeSockets = () =>
    closing.run('sockets', { run: (leftMs) => serving.sockets.close(leftMs) });
  // On PostgreSQL another host can serve them at once.
  if (store.sockets) await closeSockets();
  // Still listening: clients of running turns may reconnect, and a load balancer can see that this host is stopping.
  await closing.run('turns', {
    run: async (leftMs) => {
      hasEnded = await turns.close(timeoutMs, leftMs);
      await stopping;
    },
  });
  serving.metricsServer()?.close();
  const requestsMs = Math.min(CLOSE_TIMEOUT_MS, closing.left('requests') - FORCED_CLOSE_MARGIN_MS);
  const requests = closeHttpServer(serving.nest, requestsMs);
  await closing.run('titles', {
    run: (leftMs) => titles.close(leftMs),
    maxMs: LAST_WRITE_TIMEOUT_MS,
  });
  // Holds of a turn that does not end are never settled.
  await closing.run('gates', {
    run: (leftMs) => gates.close(hasEnded ? leftMs / 2 : 0, leftMs),
    maxMs: CLOSE_TIMEOUT_MS + LAST_WRITE_TIMEOUT_MS,
  });
  if (!store.sockets) await closeSockets();
  services.events.close();
  await closing.run('requests', { run: () => requests });
  await closing.run('imports', {
    run: () => services.imports.close(),
    maxMs: LAST_WRITE_TIMEOUT_MS,
  });
  await closing.run('plugins', { run: () => services.closePlugins() });
  await closing.run('budget', {
    run: () =>
      Promise.all([
        services.budget.close(),
        services.hostReports.close(),
        services.authority.saveUses(),
        closeLists(services),
        serving.background,
      ]),
    maxMs: LAST_WRITE_TIMEOUT_MS,
  });
  await closing.run('store', { run: () => store.close(), maxMs: LAST_WRITE_TIMEOUT_MS });
  // Last, even if the store is still closing: from now on, other hosts take over what this one left.
  await closing.run('cluster', { run: () => cluster.close(), maxMs: LAST_WRITE_TIMEOUT_MS });
  await services.exporter?.close();
  closing.end();
}

function closeLists({ cachedLists }: Services): void {
  for (const list of cachedLists) list.close();
}

function announce(url: string, { config, logger, oracle, facts }: Services): void {
  const { did, name } = oracle;
  logger.info({ did }, `oracle ${name} is ${did}, its model ${config.models.main}`);
  const { page } = facts.links;
  const talk = page ? `, talk to it at ${url}${page}` : '';
  logger.info(`listening on ${url}${talk}, API described at ${url}/docs`);
}

/** Waits for running requests; idle connections are closed at once. */
async function closeHttpServer(nest: NestExpressApplication, timeoutMs: number): Promise<void> {
  const server: Server = nest.getHttpServer();
  const idleSweep = setInterval(() => server.closeIdleConnections(), 50);
  const forcedClose = setTimeout(() => server.closeAllConnections(), timeoutMs);
  await nest.close();
  clearInterval(idleSweep);
  clearTimeout(forcedClose);
}

/** The address to open in a browser: localhost for a wildcard host. */
function formatAddress(server: Server, host: string): string {
  const { port, family } = server.address() as AddressInfo;
  if (host === '0.0.0.0' || host === '::') return `http://localhost:${port}`;
  return `http://${family === 'IPv6' ? `[${host}]` : host}:${port}`;
}

/** Adds what every request passes before a route, in this order. */
function useMiddlewares(
  nest: NestExpressApplication,
  { config, logger, metrics, exporter, rateLimits, surfaceRoutes }: Services,
): void {
  const { trustProxy, corsOrigins } = config;
  nest.disable('x-powered-by');
  nest.disable('etag');
  if (trustProxy === undefined) nest.use(warnAboutProxy(logger));
  else nest.set('trust proxy', trustProxy);
  nest.use(requestId);
  nest.use(requestScope(exporter));
  nest.use(accessLog(logger, metrics));
  nest.use(securityHeaders);
  nest.enableCors(chooseCorsOptions(corsOptions(corsOrigins), surfaceRoutes));
  nest.use(assertOneHost);
  nest.use(answerOptions);
  nest.use(anonymousLimit(rateLimits));
}

/**
 * Clients of other protocols send their own headers, so surfaces accept those that the browser announces. Their pages can read
 * why a request was refused, and when to try again.
 */
function chooseCorsOptions(
  options: ReturnType<typeof corsOptions>,
  surfaceRoutes: SurfaceRoutes,
): CorsOptionsDelegate<Request> {
  const { allowedHeaders: _, ...others } = options;
  const exposedHeaders = [...options.exposedHeaders, 'Retry-After', 'WWW-Authenticate'];
  const surfaceOptions = { ...others, exposedHeaders };
  return ({ path }, choose) => {
    const isSurface = surfaceRoutes.find(path) !== undefined;
    choose(null as never, { ...(isSurface ? surfaceOptions : options), preflightContinue: true });
  };
}

/** Only named origins may send credentials. */
function corsOptions(origins: readonly string[]) {
  const isOpen = origins.includes('*');
  return {
    origin: isOpen ? '*' : [...origins],
    credentials: !isOpen,
    allowedHeaders: [...corsRequestHeaders],
    exposedHeaders: [...corsExposedHeaders],
    methods: [...corsMethods],
    maxAge: 600,
  };
}

/** Serves sockets on the same port as the routes. */
function serveSockets(nest: NestExpressApplication, services: Services): SocketServer {
  const { config, store, rateLimits, connections } = services;
  const express: Express = nest.getHttpAdapter().getInstance();
  return new SocketServer(nest.getHttpServer(), {
    ...services,
    sessions: store.sessions,
    limits: rateLimits,
    registry: connections,
    stallMs: config.turns.streamStallMs,
    cors: corsOptions(config.corsOrigins),
    readClientAddress: (request) => readClientAddress(express, request),
  });
}

/** As Express computes it from TRUST_PROXY. */
function readClientAddress(
  express: Express,
  { headers, socket }: IncomingMessage,
): string | undefined {
  return Object.assign(Object.create(express.request), { headers, socket }).ip;
}

/** Writes Nest's log lines to the host's log; its messages at startup only at debug level. */
class NestLog implements LoggerService {
  constructor(private readonly logger: Logger) {}

  log(message: unknown): void {
    this.logger.debug(String(message));
  }

  warn(message: unknown): void {
    this.logger.warn(String(message));
  }

  error(message: unknown, stack?: unknown): void {
    this.logger.error({ stack }, String(message));
  }
}
