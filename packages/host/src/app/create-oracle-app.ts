import 'reflect-metadata';
import type { IncomingMessage, Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { DynamicModule, LoggerService, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type {
  AuthExcludedRoute,
  Feature,
  OraclePlugin,
  PluginManifestInput,
} from '@sibyl/plugin-kit';
import { corsExposedHeaders, corsMethods, corsRequestHeaders } from '@sibyl/protocol';
import type { Express } from 'express';
import type { Logger } from 'pino';
import { type Config, checkConfig, featuresOf } from '../config/config.js';
import { assertNoFaults, BootError, readEnvironment } from '../config/read-variables.js';
import { HttpAdapter } from '../http/http-adapter.js';
import {
  accessLog,
  anonymousLimit,
  answerOptions,
  requestId,
  securityHeaders,
} from '../http/middlewares.js';
import { createLogger } from '../observability/logger.js';
import { serveMetrics } from '../observability/metrics.js';
import { moduleFault } from '../plugins/load-plugins.js';
import {
  type PluginStatus,
  pluginStatus,
  selectPlugins,
  summaryOf,
} from '../plugins/select-plugins.js';
import { SocketServer } from '../sockets/socket-server.js';
import type { InvitedCaller } from '../store/caller-store.js';
import { keepRuns } from '../turns/run-leases.js';
import { AppModule } from './app.module.js';
import { buildHostParts, type HostParts } from './build-host.js';
import { bundledPlugins } from './bundled-plugins.js';
import { keepHouse } from './retention.js';
import { serveApiDocument } from './serve-openapi.js';
import { Closing, closeShares } from './shutdown.js';
import { OwnDidCheck, warnOfOpenOrigins } from './startup-checks.js';

export interface OracleAppOptions {
  /** Read once; `process.env` unless told. */
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly logger?: Logger;
  /** Plugins beside the bundled ones. */
  readonly plugins?: readonly OraclePlugin[];
  /** Instead of the plugins that come with the host; none for `[]`. */
  readonly bundled?: readonly OraclePlugin[];
  /** Which plugins load, by name; `auto` unless told. FEATURES in the environment overrules it. */
  readonly features?: Readonly<Record<string, Feature>>;
  /** What to say of a plugin instead of its own manifest, by name. */
  readonly manifestOverrides?: Readonly<Record<string, Partial<PluginManifestInput>>>;
  readonly nestModules?: readonly (Type | DynamicModule)[];
  /** Routes open to callers without a UCAN, beside those the plugins open. */
  readonly authExcludedRoutes?: readonly AuthExcludedRoute[];
}

/** A host that is ready to listen. */
export interface OracleApp {
  /** The oracle's DID: the audience of every token meant for it. */
  readonly did: string;
  readonly nest: NestExpressApplication;
  readonly plugins: {
    /** Every plugin, whether it is loaded, and why not. */
    status(): readonly PluginStatus[];
  };
  /** Users who redeemed an invitation. */
  readonly callers: {
    list(): Promise<readonly InvitedCaller[]>;
    /** Ends the access of a user at once; returns whether there was one. */
    remove(did: string): Promise<boolean>;
  };
  readonly logger: Logger;
  /** Starts serving and returns the address. */
  listen(): Promise<string>;
  /**
   * Lets running turns finish, for ten seconds by default; those that do not are stored as interrupted. Takes at
   * most 15 s longer than that.
   */
  close(patienceMs?: number): Promise<void>;
}

/** How long turns and requests under way may take to finish once the host is closing. */
const CLOSE_PATIENCE_MS = 10_000;
/** The most that the store may take at the end, and what is to be stored then. */
const LAST_MS = 5_000;
/** How long before its deadline the HTTP server closes connections that have not ended. */
const CUT_MS = 500;

/** Builds the host: its store, its plugins, its routes. All that is wrong is thrown as one BootError. */
export async function createOracleApp(options: OracleAppOptions = {}): Promise<OracleApp> {
  const { nestModules = [], authExcludedRoutes = [] } = options;
  const { config, selected, status } = readOptions(options);
  const logger = options.logger ?? (await createLogger(config));
  const parts = await buildHostParts({ config, logger, selected, authExcludedRoutes });
  let stopKeepingRuns: (() => void) | undefined;
  try {
    stopKeepingRuns = await keepRuns(parts.store.runs, parts.events, logger);
    const modules = parts.plugins.plugins.flatMap((plugin) => plugin.nestModules);
    const nest = await createNest(parts, config, [...modules, ...nestModules]).catch((error) => {
      throw moduleFault(error, parts.plugins.plugins);
    });
    logger.info(summaryOf(status));
    return oracleAppOf(nest, { ...parts, stopKeepingRuns, status }, config);
  } catch (error) {
    // A process may go on after a failed start, so nothing of it may stay behind.
    stopKeepingRuns?.();
    await parts.plugins.close();
    await parts.store.close();
    throw error;
  }
}

/** Which plugins would load, and why others would not; nothing is started. */
export const describePlugins = (options: OracleAppOptions = {}): readonly PluginStatus[] =>
  readOptions(options).status;

/** Checks the environment and the plugins together, so that all faults show at once. */
function readOptions(options: OracleAppOptions) {
  const env = readEnvironment(options.env);
  const checked = checkConfig(env);
  const plugins = [...(options.bundled ?? bundledPlugins), ...(options.plugins ?? [])];
  const { selected, off, faults } = selectPlugins({
    plugins,
    features: { ...options.features, ...featuresOf(env) },
    manifestOverrides: options.manifestOverrides ?? {},
    env,
  });
  if (!('config' in checked)) throw new BootError([...checked.faults, ...faults]);
  assertNoFaults(faults);
  return { config: checked.config, selected, status: pluginStatus(plugins, { off }) };
}

async function createNest(
  parts: HostParts,
  config: Config,
  modules: readonly (Type | DynamicModule)[],
): Promise<NestExpressApplication> {
  const nest = await NestFactory.create<NestExpressApplication>(
    AppModule.of(parts, modules),
    new HttpAdapter(),
    { logger: new NestLog(parts.logger), bodyParser: false, abortOnError: false },
  );
  try {
    useMiddlewares(nest, parts, config);
    serveApiDocument(nest, parts);
    await nest.init();
    return nest;
  } catch (error) {
    // Lets the modules of plugins that were initialized release what they hold.
    await nest
      .close()
      .catch((err) => parts.logger.warn({ err }, 'closing after a failed start failed'));
    throw error;
  }
}

function oracleAppOf(
  nest: NestExpressApplication,
  parts: HostParts & {
    readonly stopKeepingRuns: () => void;
    readonly status: readonly PluginStatus[];
  },
  config: Config,
): OracleApp {
  const stopHousekeeping = keepHouse(parts, config);
  const sockets = serveSockets(nest, parts, config);
  const ownDid = new OwnDidCheck(config, parts.oracle, parts.logger);
  let metricsServer: Server | undefined;
  return {
    did: parts.oracle.did,
    nest,
    plugins: { status: () => parts.status },
    callers: {
      list: () => parts.store.callers.list(),
      remove: (did) => parts.allowList.remove(did),
    },
    logger: parts.logger,
    async listen() {
      const { host, port, metricsPort } = config;
      try {
        await ownDid.beforeListening();
        if (metricsPort !== undefined)
          metricsServer = await serveMetrics(parts.metrics, metricsPort, host);
        await nest.listen(port, host);
      } catch (error) {
        await this.close();
        throw error;
      }
      warnOfOpenOrigins(config, parts.logger);
      void ownDid.onceListening();
      const url = addressOf(nest.getHttpServer(), host);
      announce(url, parts, config);
      return url;
    },
    async close(patienceMs) {
      parts.logger.info('stopping');
      parts.readiness.drain();
      stopHousekeeping();
      await closeParts({ ...parts, nest, sockets, metricsServer: () => metricsServer }, patienceMs);
    },
  };
}

interface ClosingParts extends HostParts {
  readonly nest: NestExpressApplication;
  readonly sockets: SocketServer;
  readonly stopKeepingRuns: () => void;
  readonly metricsServer: () => Server | undefined;
}

/** Lets go of everything in order, and leaves behind what does not end in time. */
async function closeParts(parts: ClosingParts, patienceMs = CLOSE_PATIENCE_MS): Promise<void> {
  const { turns, titles, gates, sockets, plugins, budget, store } = parts;
  const closing = new Closing(closeShares(patienceMs), parts.logger);
  let hasEnded = false;
  // Still listening: clients of running turns may rejoin, and a load balancer can see that this host is stopping.
  await closing.run('turns', {
    run: async (leftMs) => {
      hasEnded = await turns.close(patienceMs, leftMs);
    },
  });
  parts.metricsServer()?.close();
  const requestsMs = Math.min(CLOSE_PATIENCE_MS, closing.left('requests') - CUT_MS);
  const requests = closeGently(parts.nest, requestsMs);
  await closing.run('titles', { run: (leftMs) => titles.close(leftMs), maxMs: LAST_MS });
  // What belongs to a turn that does not end is never settled.
  await closing.run('gates', {
    run: (leftMs) => gates.close(hasEnded ? leftMs / 2 : 0, leftMs),
    maxMs: CLOSE_PATIENCE_MS + LAST_MS,
  });
  parts.stopKeepingRuns();
  await closing.run('sockets', { run: (leftMs) => sockets.close(leftMs) });
  await closing.run('requests', { run: () => requests });
  await closing.run('plugins', { run: () => plugins.close() });
  await closing.run('budget', { run: () => budget.close(), maxMs: LAST_MS });
  await closing.run('store', { run: () => store.close(), maxMs: LAST_MS });
  closing.end();
}

function announce(url: string, { logger, oracle, facts }: HostParts, { models }: Config): void {
  const { did, name } = oracle;
  logger.info({ did }, `oracle ${name} is ${did}, its model ${models.main}`);
  const { page } = facts.places;
  const talk = page ? `, talk to it at ${url}${page}` : '';
  logger.info(`listening on ${url}${talk}, interface described at ${url}/docs`);
}

/** Lets requests under way finish, but no client hold the host open with an idle connection. */
async function closeGently(nest: NestExpressApplication, patienceMs: number): Promise<void> {
  const server: Server = nest.getHttpServer();
  const sweep = setInterval(() => server.closeIdleConnections(), 50);
  const impatience = setTimeout(() => server.closeAllConnections(), patienceMs);
  await nest.close();
  clearInterval(sweep);
  clearTimeout(impatience);
}

/** The address to type: a wildcard host is reached as localhost. */
function addressOf(server: Server, host: string): string {
  const { port, family } = server.address() as AddressInfo;
  if (host === '0.0.0.0' || host === '::') return `http://localhost:${port}`;
  return `http://${family === 'IPv6' ? `[${host}]` : host}:${port}`;
}

/** What every request passes before a route, in this order. */
function useMiddlewares(
  nest: NestExpressApplication,
  { logger, metrics, rateLimits }: HostParts,
  { trustProxy, corsOrigins }: Config,
): void {
  nest.disable('x-powered-by');
  nest.disable('etag');
  if (trustProxy !== undefined) nest.set('trust proxy', trustProxy);
  nest.use(requestId);
  nest.use(accessLog(logger, metrics));
  nest.use(securityHeaders);
  nest.enableCors({ ...corsOptions(corsOrigins), preflightContinue: true });
  nest.use(answerOptions);
  nest.use(anonymousLimit(rateLimits));
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
function serveSockets(
  nest: NestExpressApplication,
  { store, rateLimits, ...parts }: HostParts,
  config: Config,
): SocketServer {
  const express: Express = nest.getHttpAdapter().getInstance();
  return new SocketServer(nest.getHttpServer(), {
    ...parts,
    sessions: store.sessions,
    limits: rateLimits,
    config,
    stallMs: config.turns.streamStallMs,
    cors: corsOptions(config.corsOrigins),
    clientAddress: (request) => clientAddress(express, request),
  });
}

/** As Express tells it, which knows the proxies to see through. */
function clientAddress(express: Express, { headers, socket }: IncomingMessage): string | undefined {
  return Object.assign(Object.create(express.request), { headers, socket }).ip;
}

/** Sends what Nest has to say to the host's log; its start-up chatter only at debug level. */
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
