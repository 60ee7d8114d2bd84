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

type Labels = Readonly<Record<string, string>>;

/** A value read at the moment it is printed. */
export interface Gauge {
  readonly name: string;
  readonly help: string;
  readonly values: readonly { readonly labels: Labels; readonly value: number }[];
}

export type CacheOutcome = 'hit' | 'shared' | 'miss';

/** Upper bounds of the histogram buckets, in seconds. */
const BOUNDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Maximum methods counted by name, since schemas change. */
const MAX_METHODS = 2000;
const OTHER = 'other';

interface Durations {
  readonly counts: number[];
  sum: number;
  total: number;
}

/** Counters and histograms, in the Prometheus text format. */
export class Metrics {
  private readonly requests = new Map<string, Map<number, number>>();
  private readonly durations = new Map<string, Durations>();
  private readonly cache = new Map<CacheOutcome, number>();

  /** Counts an answered request by gRPC method and HTTP status. */
  countRequest(subject: string, status: number, seconds: number): void {
    const isFull = this.requests.size >= MAX_METHODS && !this.requests.has(subject);
    const method = isFull ? OTHER : subject;
    const statuses = this.requests.get(method) ?? new Map<number, number>();
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
    this.requests.set(method, statuses);
    this.time(method, seconds);
  }

  countCache(outcome: CacheOutcome): void {
    this.cache.set(outcome, (this.cache.get(outcome) ?? 0) + 1);
  }

  print(gauges: readonly Gauge[]): string {
    return `${[
      ...this.requestLines(),
      ...this.durationLines(),
      ...this.cacheLines(),
      ...gauges.flatMap(gaugeLines),
    ].join('\n')}\n`;
  }

  private time(method: string, seconds: number): void {
    const known = this.durations.get(method);
    const durations = known ?? { counts: BOUNDS.map(() => 0), sum: 0, total: 0 };
    if (!known) this.durations.set(method, durations);
    const place = BOUNDS.findIndex((bound) => seconds <= bound);
    if (place >= 0) durations.counts[place] = (durations.counts[place] ?? 0) + 1;
    durations.sum += seconds;
    durations.total += 1;
  }

  private requestLines(): string[] {
    const name = 'sibyl_gateway_requests_total';
    const lines = [...this.requests].flatMap(([method, statuses]) =>
      [...statuses].map(
        ([status, n]) => `${name}{${labelsText({ method, status: String(status) })}} ${n}`,
      ),
    );
    return [...head(name, 'Requests, by gRPC method and HTTP status', 'counter'), ...lines];
  }

  private durationLines(): string[] {
    const name = 'sibyl_gateway_request_seconds';
    const lines = [...this.durations].flatMap(([method, { counts, sum, total }]) => {
      const label = labelsText({ method });
      let below = 0;
      const buckets = counts.map((count, i) => {
        below += count;
        return `${name}_bucket{${label},le="${BOUNDS[i]}"} ${below}`;
      });
      return [
        ...buckets,
        `${name}_bucket{${label},le="+Inf"} ${total}`,
        `${name}_sum{${label}} ${sum}`,
        `${name}_count{${label}} ${total}`,
      ];
    });
    return [...head(name, 'Response time, by gRPC method', 'histogram'), ...lines];
  }

  private cacheLines(): string[] {
    const name = 'sibyl_gateway_cache_total';
    const lines = [...this.cache].map(([outcome, n]) => `${name}{outcome="${outcome}"} ${n}`);
    return [...head(name, 'Queries by cache outcome', 'counter'), ...lines];
  }
}

function head(name: string, help: string, type: string): string[] {
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
}

function gaugeLines({ name, help, values }: Gauge): string[] {
  const lines = values.map(({ labels, value }) => {
    const text = labelsText(labels);
    return `${name}${text && `{${text}}`} ${value}`;
  });
  return [...head(name, help, 'gauge'), ...lines];
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };

function labelsText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value.replace(/[\\"\n]/g, (c) => escapes[c] ?? c)}"`)
    .join(',');
}

interface GaugeDeps {
  readonly pool: NodePool;
  readonly cache: ReplyCache;
  readonly watchers: number;
  readonly labelNode: (node: ChainNode) => string;
}

/** Reads the current values of all gauges. */
export function collectGauges({ pool, cache, watchers, labelNode }: GaugeDeps): Gauge[] {
  const { rss, heapUsed } = process.memoryUsage();
  return [
    gauge('sibyl_gateway_latest_height', 'Latest height of the chain', pool.latest),
    ...nodeGauges(pool, labelNode),
    gauge('sibyl_gateway_cache_bytes', 'Memory of cached replies', cache.bytes),
    gauge('sibyl_gateway_cache_entries', 'Cached replies', cache.size),
    gauge('sibyl_gateway_watchers', 'Watching clients', watchers),
    gauge('process_resident_memory_bytes', 'Resident memory', rss),
    gauge('nodejs_heap_used_bytes', 'Heap in use', heapUsed),
  ];
}

function gauge(name: string, help: string, value: number): Gauge {
  return { name, help, values: [{ labels: {}, value }] };
}

function nodeGauges({ nodes, latest }: NodePool, labelNode: GaugeDeps['labelNode']): Gauge[] {
  const perNode = (name: string, help: string, measure: (node: ChainNode) => number): Gauge => ({
    name: `sibyl_gateway_node_${name}`,
    help,
    values: nodes.map((node) => ({ labels: { node: labelNode(node) }, value: measure(node) })),
  });
  return [
    perNode('up', 'Whether a node is available', ({ isUp }) => Number(isUp)),
    perNode('height', 'Height of a node', ({ height }) => height),
    perNode('lag', 'Blocks a node is behind', ({ height }) => Math.max(0, latest - height)),
    perNode('calls', 'Calls in progress', ({ inFlight }) => inFlight),
    perNode('error_rate', 'Share of recent calls that failed', ({ breaker }) => breaker.errorRate),
    perNode('latency_seconds', 'Mean time of a call', ({ latencyMs }) => latencyMs / 1000),
  ];
}
