import { TallyCounter, TallyHistogram } from '@sibyl/server-kit/metrics';
import { Gauge, Registry } from 'prom-client';
import type { Config } from '../config/config.js';
import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { ReplyCache } from '../query/reply-cache.js';

/** The logging interface; compatible with pino. */
export interface Logger {
  debug(fields: object, message?: string): void;
  info(fields: object, message?: string): void;
  warn(fields: object, message?: string): void;
  error(fields: object, message?: string): void;
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** A logger of JSON lines on standard output. */
export function createLogger({ logLevel }: Pick<Config, 'logLevel'>): Logger {
  const threshold = LEVELS.indexOf(logLevel);
  const at = (level: (typeof LEVELS)[number]) =>
    LEVELS.indexOf(level) < threshold
      ? () => {}
      : (fields: object, msg?: string) => {
          const line = { level, time: new Date().toISOString(), ...fields, msg };
          process.stdout.write(`${JSON.stringify(line)}\n`);
        };
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

const CACHE_OUTCOMES = ['hit', 'shared', 'miss'] as const;
export type CacheOutcome = (typeof CACHE_OUTCOMES)[number];

/** Upper bounds of the histogram buckets, in seconds. */
const BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Maximum methods counted by name, since schemas change. */
const MAX_METHODS = 2000;
const OTHER = 'other';

/** Counters and histograms, in the Prometheus text format. */
export class Metrics {
  private readonly registry = new Registry();
  private readonly methods = new Set<string>();
  private readonly requests: TallyCounter;
  private readonly durations: TallyHistogram;
  private readonly cache: TallyCounter;

  constructor() {
    const registers = [this.registry];
    this.requests = new TallyCounter({
      name: 'sibyl_gateway_requests_total',
      help: 'Requests, by gRPC method and HTTP status',
      labelNames: ['method', 'status'],
      registers,
    });
    this.durations = new TallyHistogram({
      name: 'sibyl_gateway_request_seconds',
      help: 'Response time, by gRPC method',
      labelNames: ['method'],
      buckets: BOUNDS,
      registers,
    });
    this.cache = new TallyCounter({
      name: 'sibyl_gateway_cache_total',
      help: 'Queries by cache outcome',
      labelNames: ['outcome'],
      registers,
    });
    for (const outcome of CACHE_OUTCOMES) this.cache.add({ outcome }, 0);
  }

  /** Counts an answered request by gRPC method and HTTP status. */
  countRequest(subject: string, status: number, seconds: number): void {
    const method = this.methods.has(subject) ? subject : this.nameMethod(subject);
    this.requests.add({ method, status });
    this.durations.add({ method }, seconds);
  }

  private nameMethod(subject: string): string {
    if (this.methods.size >= MAX_METHODS) return OTHER;
    this.methods.add(subject);
    return subject;
  }

  countCache(outcome: CacheOutcome): void {
    this.cache.add({ outcome });
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  async print(gauges: Registry): Promise<string> {
    return `${await this.registry.metrics()}${await gauges.metrics()}`;
  }
}

interface GaugeDeps {
  readonly pool: NodePool;
  readonly cache: ReplyCache;
  readonly watchers: number;
  readonly labelNode: (node: ChainNode) => string;
}

/** Reads the current values of all gauges. */
export function collectGauges({ pool, cache, watchers, labelNode }: GaugeDeps): Registry {
  const registry = new Registry();
  const registers = [registry];
  const add = (name: string, help: string, value: number) =>
    new Gauge({ name, help, registers }).set(value);
  const addPerNode = (name: string, help: string, measure: (node: ChainNode) => number) => {
    const labelNames = ['node'];
    const gauge = new Gauge({ name: `sibyl_gateway_node_${name}`, help, labelNames, registers });
    for (const node of pool.nodes) gauge.set({ node: labelNode(node) }, measure(node));
  };
  const { rss, heapUsed } = process.memoryUsage();
  add('sibyl_gateway_latest_height', 'Latest height of the chain', pool.latest);
  addPerNode('up', 'Whether a node is available', ({ isUp }) => Number(isUp));
  addPerNode('height', 'Height of a node', ({ height }) => height);
  addPerNode('lag', 'Blocks a node is behind', ({ height }) => Math.max(0, pool.latest - height));
  addPerNode('calls', 'Calls in progress', ({ inFlight }) => inFlight);
  addPerNode('error_rate', 'Share of recent calls that failed', ({ breaker }) => breaker.errorRate);
  addPerNode('latency_seconds', 'Mean time of a call', ({ latencyMs }) => latencyMs / 1000);
  add('sibyl_gateway_cache_bytes', 'Memory of cached replies', cache.bytes);
  add('sibyl_gateway_cache_entries', 'Cached replies', cache.size);
  add('sibyl_gateway_watchers', 'Watching clients', watchers);
  // The names that prom-client gives them; its other default metrics cost time even if they are not read.
  add('process_resident_memory_bytes', 'Resident memory', rss);
  add('nodejs_heap_size_used_bytes', 'Heap in use', heapUsed);
  return registry;
}
