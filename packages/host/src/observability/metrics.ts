import { createServer, type Server } from 'node:http';
import { withTimeout } from '@sibyl/server-kit';
import { TallyCounter, TallyHistogram } from '@sibyl/server-kit/metrics';
import { Counter, collectDefaultMetrics, Gauge, Registry } from 'prom-client';

/** Counters, their help texts and labels. The values of every label are bounded by code or configuration. */
const counters = {
  sibyl_http_requests_total: ['Requests, by method, route and status', 'method', 'route', 'status'],
  sibyl_errors_total: ['Requests that were answered with an error, by its code', 'code'],
  sibyl_auth_total: ['Authentication attempts, by means and outcome', 'means', 'outcome'],
  sibyl_tokens_refused_total: ['Rejected tokens, by purpose and reason', 'purpose', 'reason'],
  sibyl_turns_total: ['Turns that ended, by status and kind of error', 'status', 'kind'],
  sibyl_turn_failures_total: ['Turns without a complete answer, by cause', 'cause'],
  sibyl_model_failures_total: [
    'Calls of models that failed, also those that were tried again, by cause',
    'model',
    'cause',
  ],
  sibyl_model_tokens_total: ['Tokens, by model and kind', 'model', 'kind'],
  sibyl_model_cost_total: ['Cost of models, in the currency of the configured prices', 'model'],
  sibyl_approvals_total: ['Decisions about tool calls, by outcome', 'outcome'],
  sibyl_takeovers_total: ['Runs of dead hosts that this host took over, by outcome', 'outcome'],
  sibyl_socket_handshakes_total: ['Socket handshakes, by outcome', 'outcome'],
  sibyl_rate_limited_total: ['Requests rejected by a rate limit, by kind', 'kind'],
  sibyl_flushed_runs_total: ['Turns whose frames were stored'],
} as const satisfies Readonly<Record<string, readonly [help: string, ...labels: string[]]>>;

const FAST = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const SLOW = [0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 300];

/** Histograms of seconds: help text, limits of the buckets, labels. */
const histograms = {
  sibyl_http_request_seconds: [
    'Time until a request was answered completely',
    FAST,
    'method',
    'route',
  ],
  sibyl_time_to_first_token_seconds: [
    'Time from a message to the first text of its answer',
    SLOW,
    'model',
  ],
  sibyl_turn_seconds: ['Time that turns were executed, without waiting in a queue', SLOW, 'status'],
  sibyl_model_call_seconds: ['Time that calls of models took', SLOW, 'model', 'outcome'],
  sibyl_tool_seconds: ['Time that tool calls took', FAST, 'tool', 'outcome'],
  sibyl_hook_seconds: ['Time that hooks of plugins took', FAST, 'plugin', 'hook'],
  sibyl_flush_seconds: ['Time that storing the frames of running turns took', FAST],
} as const satisfies Readonly<
  Record<string, readonly [help: string, bounds: number[], ...labels: string[]]>
>;

/** What the bus between hosts has done since the start. */
export interface BusFigures {
  readonly sent: number;
  readonly received: number;
  /** Messages that were too large, did not fit into the queue, or were in a batch that failed. */
  readonly dropped: number;
  /** Statements that sent messages. */
  readonly batches: number;
  /** Of all messages sent. */
  readonly bytes: number;
  /** How long a message to this host itself takes; rises while none arrive. */
  readonly lagMs: number;
}

export type CounterName = keyof typeof counters;
export type HistogramName = keyof typeof histograms;
export type Labels = Readonly<Record<string, string>>;

interface GaugeOptions {
  readonly name: string;
  readonly help: string;
  /** The label of the values, if there are several. */
  readonly label?: string;
}

/** Less than the time after which Prometheus times out. */
const READ_LIMIT = { ms: 3_000, message: 'a value is not read in time' };

/** Tool calls with names that no plugin declares at startup: a stranger may have chosen them. */
const OTHER_TOOL = 'other';

/** The metrics of one host, in the Prometheus text format. */
export class Metrics {
  private readonly registry = new Registry();
  private readonly counters = new Map<CounterName, TallyCounter>();
  private readonly histograms = new Map<HistogramName, TallyHistogram>();
  private tools: ReadonlySet<string> = new Set();

  constructor() {
    const registers = [this.registry];
    for (const [name, [help, ...labelNames]] of Object.entries(counters))
      this.counters.set(
        name as CounterName,
        new TallyCounter({ name, help, labelNames: [...labelNames], registers }),
      );
    for (const [name, [help, bounds, ...labelNames]] of Object.entries(histograms))
      this.histograms.set(
        name as HistogramName,
        new TallyHistogram({ name, help, buckets: bounds, labelNames: [...labelNames], registers }),
      );
  }

  count(name: CounterName, labels: Labels = {}, by = 1): void {
    this.counters.get(name)?.add(labels, by);
  }

  observe(name: HistogramName, labels: Labels, seconds: number): void {
    this.histograms.get(name)?.add(labels, seconds);
  }

  /** Counts a flush that stored frames of this many turns. */
  countFlush(runs: number, seconds: number): void {
    this.count('sibyl_flushed_runs_total', {}, runs);
    this.observe('sibyl_flush_seconds', {}, seconds);
  }

  /** Names the tools that have their own label; all others share one. */
  nameTools(names: Iterable<string>): void {
    this.tools = new Set(names);
  }

  observeTool(name: string, outcome: string, seconds: number): void {
    const tool = this.tools.has(name) ? name : OTHER_TOOL;
    this.observe('sibyl_tool_seconds', { tool, outcome }, seconds);
  }

  /** Adds values that are read when the metrics are. A value that cannot be read, or not in time, is left out. */
  addGauge(
    { name, help, label }: GaugeOptions,
    read: () => number | Values | Promise<number | Values>,
  ): void {
    new Gauge({
      name,
      help,
      labelNames: label ? [label] : [],
      registers: [this.registry],
      async collect() {
        this.reset();
        const value = await withTimeout(READ_LIMIT, async () => read()).catch(() => undefined);
        if (typeof value === 'number') this.set(value);
        else if (label)
          for (const [key, each] of Object.entries(value ?? {})) this.set({ [label]: key }, each);
        // After a reset, a gauge without labels would be 0.
        else this.remove();
      },
    });
  }

  /** Adds a counter whose values are kept elsewhere. */
  addCounter({ name, help, label }: GaugeOptions, read: () => number | Values): void {
    new Counter({
      name,
      help,
      labelNames: label ? [label] : [],
      registers: [this.registry],
      collect() {
        this.reset();
        const value = read();
        if (typeof value === 'number') this.inc(value);
        else if (label)
          for (const [key, each] of Object.entries(value)) this.inc({ [label]: key }, each);
      },
    });
  }

  /** Adds what the bus between hosts has done since the start. */
  addBus(read: () => BusFigures): void {
    this.addCounter(
      {
        name: 'sibyl_bus_messages_total',
        help: 'Messages between hosts, by outcome',
        label: 'outcome',
      },
      () => {
        const { sent, received, dropped } = read();
        return { sent, received, dropped };
      },
    );
    this.addCounter(
      { name: 'sibyl_bus_batches_total', help: 'Statements that sent messages' },
      () => read().batches,
    );
    this.addCounter(
      { name: 'sibyl_bus_bytes_total', help: 'Size of all messages sent' },
      () => read().bytes,
    );
    this.addGauge(
      { name: 'sibyl_bus_lag_seconds', help: 'Time that a message takes' },
      () => read().lagMs / 1000,
    );
  }

  /** Adds processor time, memory, event loop and garbage collection; only if they are read, because they cost some time. */
  addProcess(): void {
    collectDefaultMetrics({ register: this.registry });
    // Gauges named as counters, of what other gauges have by type.
    for (const kind of ['handles', 'requests', 'resources'])
      this.registry.removeSingleMetric(`nodejs_active_${kind}_total`);
  }

  print(): Promise<string> {
    return this.registry.metrics();
  }
}

/** Values by label. */
type Values = Readonly<Record<string, number>>;

/** Serves `/metrics` on its own port, so that it can stay inside the firewall. */
export async function serveMetrics(metrics: Metrics, port: number, host: string): Promise<Server> {
  metrics.addProcess();
  const server = createServer((request, response) => {
    if (request.url !== '/metrics') return void response.writeHead(404).end();
    void metrics.print().then(
      (text) =>
        response.writeHead(200, { 'content-type': Registry.PROMETHEUS_CONTENT_TYPE }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  return server;
}
