import 'reflect-metadata';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { DynamicModule, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { AuthExcludedRoute, OraclePlugin } from '@sibyl/plugin-kit';
import type { Logger } from 'pino';
import { PublicRoutes } from '../auth/public-routes.js';
import { type Config, loadConfig } from '../config/config.js';
import { createLogger } from '../observe/logger.js';
import { serveMetrics } from '../observe/metrics.js';
import { HttpAdapter } from '../transport/http-adapter.js';
import { keepRuns } from '../turn/run-keeper.js';
import { serveApiDocument } from './api-document/serve-api-document.js';
import { AppModule } from './app.module.js';
import { buildHostParts, type HostParts } from './host-parts.js';
import { keepHouse } from './housekeeping.js';
import { NestLog } from './nest-log.js';
import { useMiddlewares } from './use-middlewares.js';

export interface OracleAppOptions {
  /** Default: read from the environment. */
  readonly config?: Config;
  readonly logger?: Logger;
  readonly plugins?: readonly OraclePlugin[];
  readonly nestModules?: readonly (Type | DynamicModule)[];
  /** Routes open to callers without a UCAN, beside those the plugins open. */
  readonly authExcludedRoutes?: readonly AuthExcludedRoute[];
}

/** A host that is ready to listen. */
export interface OracleApp {
  /** The oracle's DID: the audience of every token meant for it. */
  readonly did: string;
  readonly nest: NestExpressApplication;
  /** Starts serving and returns the address. */
  listen(): Promise<string>;
  close(): Promise<void>;
}

/** How long requests under way may take to finish once the host is closing. */
const CLOSE_PATIENCE_MS = 10_000;

/** Builds the host: its store, its routes, its plugins' routes. */
export async function createOracleApp(options: OracleAppOptions = {}): Promise<OracleApp> {
  const {
    config = loadConfig(),
    plugins = [],
    nestModules = [],
    authExcludedRoutes = [],
  } = options;
  const opened = plugins.flatMap((plugin) => plugin.getAuthExcludedRoutes?.() ?? []);
  const parts = await buildHostParts({
    config,
    logger: options.logger ?? (await createLogger(config)),
    publicRoutes: new PublicRoutes([...opened, ...authExcludedRoutes]),
    features: plugins.map(({ name }) => name),
    tools: plugins.flatMap((plugin) => plugin.getTools?.() ?? []),
  });
  const modules = [...plugins.flatMap((p) => p.getNestModules?.() ?? []), ...nestModules];
  try {
    const stopKeepingRuns = await keepRuns(parts.store.runs, parts.logger);
    const nest = await createNest(parts, config, modules);
    return oracleAppOf(nest, { ...parts, stopKeepingRuns }, config);
  } catch (error) {
    await parts.store.close();
    throw error;
  }
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
  useMiddlewares(nest, parts, config);
  serveApiDocument(nest, parts);
  await nest.init();
  return nest;
}

function oracleAppOf(
  nest: NestExpressApplication,
  parts: HostParts & { readonly stopKeepingRuns: () => void },
  config: Config,
): OracleApp {
  const stopHousekeeping = keepHouse(parts, config);
  let metricsServer: Server | undefined;
  return {
    did: parts.oracle.did,
    nest,
    async listen() {
      const { host, port, metricsPort } = config;
      try {
        if (metricsPort !== undefined)
          metricsServer = await serveMetrics(parts.metrics, metricsPort, host);
        await nest.listen(port, host);
      } catch (error) {
        await this.close();
        throw error;
      }
      return addressOf(nest.getHttpServer(), host);
    },
    async close() {
      stopHousekeeping();
      metricsServer?.close();
      // No new connections from now on; those there are stay until their turns have ended.
      const closed = closeGently(nest);
      await parts.turns.close(CLOSE_PATIENCE_MS);
      await parts.titles.close();
      parts.stopKeepingRuns();
      await closed;
      await parts.store.close();
    },
  };
}

/** Lets requests under way finish, but no client hold the host open with an idle connection. */
async function closeGently(nest: NestExpressApplication): Promise<void> {
  const server: Server = nest.getHttpServer();
  const sweep = setInterval(() => server.closeIdleConnections(), 50);
  const impatience = setTimeout(() => server.closeAllConnections(), CLOSE_PATIENCE_MS + 5000);
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
