import { createServer, type Server } from 'node:http';
import { type GaugeReading, type Labels, MetricsRegistry } from '@sibyl/server-kit';

/** The counters of the host and their help texts. */
const counters = {
  sibyl_http_requests_total: 'Requests, by method, route and status',
  sibyl_auth_total: 'Authentication attempts, by means and outcome',
  sibyl_tokens_refused_total: 'Rejected tokens, by purpose and reason',
  sibyl_turns_total: 'Turns that ended, by status and kind of error',
  sibyl_approvals_total: 'Decisions about tool calls, by outcome',
  sibyl_takeovers_total: 'Runs of dead hosts that this host took over, by outcome',
  sibyl_socket_handshakes_total: 'Socket handshakes, by outcome',
  sibyl_rate_limited_total: 'Requests rejected by a rate limit, by kind',
} as const;

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

type CounterName = keyof typeof counters;

/** The metrics of one host, in the Prometheus text format. */
export class Metrics {
  private readonly registry = new MetricsRegistry();
  private readonly counters = new Map(
    Object.entries(counters).map(([name, help]) => [name, this.registry.counter(name, help)]),
  );

  private readonly flushes = { count: 0, runs: 0 };

  constructor() {
    this.registry.addProcessGauges();
    const { flushes } = this;
    const add = (name: string, help: string, read: () => number) =>
      this.registry.externalCounter(name, help, read);
    add('sibyl_flushes_total', 'Times that frames were stored', () => flushes.count);
    add('sibyl_flushed_runs_total', 'Turns whose frames were stored', () => flushes.runs);
  }

  /** Counts a flush that stored frames of this many turns. */
  countFlush(runs: number): void {
    this.flushes.count += 1;
    this.flushes.runs += runs;
  }

  count(name: CounterName, labels: Labels): void {
    this.counters.get(name)?.increment(labels);
  }

  /** Adds the number of hosts that this one sees as running, itself included. */
  addHosts(count: () => number): void {
    this.registry.gauge('sibyl_hosts', 'Running hosts that this host sees', count);
  }

  /** Adds what the bus between hosts has done since the start. */
  addBus(read: () => BusFigures): void {
    const add = (name: string, help: string, select: (figures: BusFigures) => GaugeReading) =>
      this.registry.externalCounter(name, help, () => select(read()));
    add('sibyl_bus_messages_total', 'Messages between hosts, by outcome', (figures) =>
      (['sent', 'received', 'dropped'] as const).map((outcome) => ({
        labels: { outcome },
        value: figures[outcome],
      })),
    );
    add('sibyl_bus_batches_total', 'Statements that sent messages', ({ batches }) => batches);
    add('sibyl_bus_bytes_total', 'Size of all messages sent', ({ bytes }) => bytes);
    this.registry.gauge(
      'sibyl_bus_lag_seconds',
      'Time that a message takes',
      () => read().lagMs / 1000,
    );
  }

  print(): string {
    return this.registry.print();
  }
}

/** Serves `/metrics` on its own port, so that it can stay inside the firewall. */
export async function serveMetrics(metrics: Metrics, port: number, host: string): Promise<Server> {
  const server = createServer((request, response) => {
    if (request.url !== '/metrics') return void response.writeHead(404).end();
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' }).end(metrics.print());
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject).listen(port, host, resolve);
  });
  return server;
}
