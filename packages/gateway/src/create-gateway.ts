import { readFile } from 'node:fs/promises';
import { rootCertificates } from 'node:tls';
import type { Config } from './config/config.js';
import type { UpstreamAddress } from './config/upstream-url.js';
import { Admission } from './gating/admission.js';
import { askChain } from './gating/ask-chain.js';
import { createGate } from './gating/create-gate.js';
import { closerOf } from './http/close-server.js';
import type { GatewayParts } from './http/gateway-parts.js';
import { Handler } from './http/handler.js';
import { createHttpServer, listen } from './http/http-server.js';
import { createOperatorHandler } from './http/operator-handler.js';
import { Watches } from './http/watches.js';
import { ByteBudget } from './limits/byte-budget.js';
import { BlockWatch } from './nodes/block-watch.js';
import { ChainNode } from './nodes/chain-node.js';
import { createUpstream } from './nodes/create-upstream.js';
import { NodePool } from './nodes/node-pool.js';
import { createLogger, type Logger } from './observe/logger.js';
import { Metrics } from './observe/metrics.js';
import { Answers } from './query/answers.js';
import { Questions } from './query/questions.js';
import { SchemaKeeper } from './schema-source/schema-keeper.js';
import { SchemaRefresh } from './schema-source/schema-refresh.js';
import { ReplyMemory } from './upstream/reply-memory.js';

export interface GatewayOptions {
  readonly config: Config;
  readonly logger?: Logger;
}

/** A gateway, listening or about to. */
export interface Gateway {
  /** The DID that UCANs must be addressed to, where they are asked for; known once it listens. */
  readonly did: string | undefined;
  /** The address of the port for operators, if there is one; known once it listens. */
  readonly metricsUrl: string | undefined;
  /** Starts to listen, and resolves to the URL once nodes were asked for the first time. */
  listen(): Promise<string>;
  /** Lets requests under way end, and stops. */
  close(): Promise<void>;
}

/** Makes a gateway; nothing is asked or opened before `listen`. */
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
  const demo = config.nodes.addresses.length === 0 ? await startDemo(logger) : undefined;
  const addresses = demo ? [demo.address] : config.nodes.addresses;
  const { parts, refresh, did } = await createParts(config, logger, addresses);
  const times = {
    requestTimeoutMs: config.requestTimeoutMs,
    answerTimeoutMs: config.nodes.timeoutMs,
  };
  const server = createHttpServer(new Handler(parts).handle, times);
  const operatorServer = createHttpServer(createOperatorHandler(parts), times);
  const closers = [closerOf(server), closerOf(operatorServer)];
  const { host, port, metricsPort } = config;
  try {
    const url = await listen(server, port, host);
    const metricsUrl =
      metricsPort === undefined ? undefined : await listen(operatorServer, metricsPort, host);
    await parts.blocks.start();
    await refresh.start();
    return { url, metricsUrl, did, stop };
  } catch (fault) {
    // An address in use must leave nothing running behind.
    await stop();
    throw fault;
  }

  async function stop() {
    refresh.stop();
    parts.blocks.stop();
    parts.watches.close();
    await Promise.all(closers.map((close) => close()));
    for (const { upstream } of parts.pool.nodes) upstream.close();
    await demo?.close();
  }
}

async function startDemo(logger: Logger) {
  const { startDemoChain } = await import('./demo-chain/index.js');
  const { url, close } = await startDemoChain();
  logger.info({ url }, 'GATEWAY_UPSTREAMS is unset: serving the built-in demo chain');
  const address: UpstreamAddress = { url: new URL(url), from: undefined };
  return { address, close };
}

async function createParts(config: Config, logger: Logger, addresses: readonly UpstreamAddress[]) {
  const { caFile, maxReplyBytes, maxLag, pollMs } = config.nodes;
  const ca =
    caFile === undefined ? undefined : [...rootCertificates, await readFile(caFile, 'utf8')];
  const memory = new ReplyMemory(Math.max(256 * 1024 * 1024, 16 * maxReplyBytes));
  const nodes = addresses.map(
    (address, i) =>
      new ChainNode(
        createUpstream({ url: address.url, ca, maxReplyBytes, memory }),
        address,
        i + 1,
      ),
  );
  const metrics = new Metrics();
  const pool = new NodePool({ nodes, maxLag });
  const blocks = new BlockWatch(pool, pollMs);
  logStates(blocks, logger);
  const keeper = new SchemaKeeper({ nodes, config, logger });
  const questions = new Questions({ keeper, config });
  const answers = new Answers({
    pool,
    blocks,
    cacheBytes: config.cache.maxBytes,
    metrics,
    longestMs: config.nodes.timeoutMs,
  });
  const { incoming, outgoing } = createBudgets(maxReplyBytes);
  const watches = new Watches({ answers, blocks, pool, outgoing, ...config.watch });
  const asking = { config, logger, askChain: askChain({ questions, answers, pool }) };
  const { gate, did } = await createGate(asking);
  const admission = new Admission(gate, config);
  const shared = { config, logger, metrics, pool, blocks, keeper };
  const limits = { incoming, outgoing };
  const parts: GatewayParts = { ...shared, ...limits, questions, answers, admission, watches };
  return { parts, refresh: new SchemaRefresh({ pool, blocks, keeper, pollMs }), did };
}

/** Clients see counts and numbers alone, so the log is where a number gets its address. */
function logStates(blocks: BlockWatch, logger: Logger): void {
  blocks.on('up', ({ number, name }) => {
    logger.info({ number, node: name }, `node ${number} (${name}) is up`);
  });
  blocks.on('down', ({ number, name, lastFault }) => {
    logger.warn({ number, node: name, reason: lastFault }, `node ${number} (${name}) is down`);
  });
}

/** The memory that requests in progress may hold, beside what is cached. */
function createBudgets(maxReplyBytes: number) {
  const incoming = new ByteBudget({
    maxBytes: 128 * 1024 * 1024,
    maxBytesPerCaller: 16 * 1024 * 1024,
  });
  // JSON takes more than the message it is made of.
  const maxBytesPerCaller = Math.max(64 * 1024 * 1024, 4 * maxReplyBytes);
  const outgoing = new ByteBudget({ maxBytes: 4 * maxBytesPerCaller, maxBytesPerCaller });
  return { incoming, outgoing };
}
