import { readFile } from 'node:fs/promises';
import { rootCertificates } from 'node:tls';
import { ReplyMemory } from '@sibyl/grpc-client';
import { ByteBudget } from '@sibyl/server-kit';
import { Admission } from './auth/admission.js';
import { createChainFetch, createGate } from './auth/create-gate.js';
import type { Config } from './config/config.js';
import type { GatewayDeps } from './http/gateway-deps.js';
import { Handler } from './http/handler.js';
import { createOperatorHandler } from './http/own-routes.js';
import { createCloser, createHttpServer, listen } from './http/server.js';
import { Watches } from './http/watches.js';
import { BlockWatch } from './nodes/block-watch.js';
import { ChainNode } from './nodes/chain-node.js';
import { NodePool } from './nodes/node-pool.js';
import { createLogger, type Logger, Metrics } from './observe/metrics.js';
import { QueryParser } from './query/query-parser.js';
import { QueryService } from './query/query-service.js';
import { TypeLookup } from './query/type-lookup.js';
import { SchemaRefresher, SchemaRegistry } from './schema/schema-registry.js';
import { AbciUpstream } from './upstream/abci-upstream.js';
import { GrpcUpstream } from './upstream/grpc-upstream.js';
import type { Upstream, UpstreamOptions } from './upstream/upstream.js';

export interface GatewayOptions {
  readonly config: Config;
  readonly logger?: Logger;
}

/** A gateway, before or after `listen`. */
export interface Gateway {
  /** The audience of UCANs, with GATEWAY_AUTH=ucan; set by `listen`. */
  readonly did: string | undefined;
  /** The URL of the operator port, if there is one; set by `listen`. */
  readonly metricsUrl: string | undefined;
  /** Starts listening; resolves to the URL after the first poll of the nodes. */
  listen(): Promise<string>;
  /** Finishes running requests and stops. */
  close(): Promise<void>;
}

/** Creates a gateway; `listen` opens its connections. */
export function createGateway({ config, logger = createLogger(config) }: GatewayOptions): Gateway {
  let running: Running | undefined;
  return {
    get did() {
      return running?.did;
    },
    get metricsUrl() {
      return running?.metricsUrl;
    },
    listen: async () => {
      running ??= await start(config, logger);
      return running.url;
    },
    close: async () => {
      const stopping = running;
      running = undefined;
      await stopping?.stop();
    },
  };
}

interface Running {
  readonly url: string;
  readonly metricsUrl: string | undefined;
  readonly did: string | undefined;
  stop(): Promise<void>;
}

async function start(config: Config, logger: Logger): Promise<Running> {
  const { deps, refresh, did } = await createDeps(config, logger);
  const times = {
    requestTimeoutMs: config.requestTimeoutMs,
    answerTimeoutMs: config.nodes.timeoutMs,
  };
  const server = createHttpServer(new Handler(deps).handle, times);
  const operatorServer = createHttpServer(createOperatorHandler(deps), times);
  const closers = [createCloser(server), createCloser(operatorServer)];
  const { host, port, metricsPort } = config;
  try {
    const url = await listen(server, port, host);
    const metricsUrl =
      metricsPort === undefined ? undefined : await listen(operatorServer, metricsPort, host);
    await deps.blocks.start();
    await refresh.start();
    return { url, metricsUrl, did, stop };
  } catch (error) {
    // If the address is in use, nothing may keep running.
    await stop();
    throw error;
  }

  async function stop() {
    refresh.stop();
    deps.blocks.stop();
    deps.watches.close();
    await Promise.all(closers.map((close) => close()));
    for (const { upstream } of deps.pool.nodes) upstream.close();
  }
}

/** Fields that a message omits are written, so JSON can be hundreds of times as long. */
const JSON_PER_REPLY_BYTE = 8;
/** Shorter replies cannot become too long. */
const MIN_REPLY_BYTES = 1024 * 1024;

async function createDeps(config: Config, logger: Logger) {
  const { addresses, caFile, http2, maxReplyBytes, maxLag, pollMs } = config.nodes;
  const ca =
    caFile === undefined ? undefined : [...rootCertificates, await readFile(caFile, 'utf8')];
  const memoryBytes = Math.max(256 * 1024 * 1024, 16 * maxReplyBytes);
  const memory = new ReplyMemory(memoryBytes, memoryBytes / 4);
  const nodes = addresses.map(
    (address, i) =>
      new ChainNode(
        createUpstream({
          url: address.url,
          rpc: address.rpc,
          ca,
          http2,
          maxReplyBytes,
          memory,
        }),
        address,
        i + 1,
      ),
  );
  const metrics = new Metrics();
  const pool = new NodePool({ nodes, maxLag });
  const blocks = new BlockWatch(pool, pollMs);
  logStates(blocks, logger);
  const schemaRegistry = new SchemaRegistry({ nodes, config, logger });
  const typeLookup = new TypeLookup(logger);
  const queryParser = new QueryParser({ pool, schemaRegistry, typeLookup, config });
  const queryService = new QueryService({
    pool,
    blocks,
    typeLookup,
    cacheBytes: config.cache.maxBytes,
    metrics,
    memory,
    maxJsonBytes: JSON_PER_REPLY_BYTE * Math.max(maxReplyBytes, MIN_REPLY_BYTES),
    longestMs: config.nodes.timeoutMs,
  });
  const { incoming, outgoing } = createBudgets(maxReplyBytes);
  const watches = new Watches({
    queryService,
    blocks,
    pool,
    schemaRegistry,
    outgoing,
    ...config.watch,
  });
  const asking = {
    config,
    logger,
    createChainFetch: createChainFetch({ queryParser, queryService, pool }),
  };
  const { gate, did } = await createGate(asking);
  const admission = new Admission(gate, config);
  const shared = { config, logger, metrics, pool, blocks, schemaRegistry };
  const limits = { incoming, outgoing };
  const deps: GatewayDeps = { ...shared, ...limits, queryParser, queryService, admission, watches };
  return { deps, refresh: new SchemaRefresher({ pool, blocks, schemaRegistry, pollMs }), did };
}

function createUpstream(options: UpstreamOptions): Upstream {
  const isRpc = options.url.protocol.startsWith('rpc+');
  return isRpc ? new AbciUpstream(options) : new GrpcUpstream(options);
}

/** The log maps node numbers to addresses, which clients do not see. */
function logStates(blocks: BlockWatch, logger: Logger): void {
  blocks.on('up', ({ number, name }) => {
    logger.info({ number, node: name }, `node ${number} (${name}) is up`);
  });
  blocks.on('down', ({ number, name, lastError, excludedReason: reason = lastError }) => {
    logger.warn({ number, node: name, reason }, `node ${number} (${name}) is down`);
  });
}

/** Memory limits of requests in progress, besides the cache. */
function createBudgets(maxReplyBytes: number) {
  const incoming = new ByteBudget({
    maxBytes: 128 * 1024 * 1024,
    maxBytesPerKey: 16 * 1024 * 1024,
  });
  // JSON is larger than the encoded message.
  const maxBytesPerKey = Math.max(64 * 1024 * 1024, 4 * maxReplyBytes);
  const outgoing = new ByteBudget({ maxBytes: 4 * maxBytesPerKey, maxBytesPerKey });
  return { incoming, outgoing };
}
