import { createServer, type Server } from 'node:http';

type Labels = Readonly<Record<string, string>>;

/** Every counter of the host and what it counts. */
const counters = {
  sibyl_http_requests_total: 'Answered requests, by method, route and status',
  sibyl_auth_total: 'Attempts to prove who is calling, by means and outcome',
  sibyl_tokens_refused_total: 'Tokens that were refused, by purpose and reason',
  sibyl_turns_total: 'Turns that ended, by status and kind of fault',
  sibyl_socket_handshakes_total: 'Sockets that asked to be let in, by outcome',
  sibyl_rate_limited_total: 'Requests refused by a rate limit, by kind',
} as const;

type CounterName = keyof typeof counters;

/** Counts, and prints what was counted in the Prometheus text format. */
export class Metrics {
  private readonly series = new Map<CounterName, Map<string, number>>();

  count(name: CounterName, labels: Labels): void {
    const values = this.series.get(name) ?? new Map<string, number>();
    const key = labelsText(labels);
    values.set(key, (values.get(key) ?? 0) + 1);
    this.series.set(name, values);
  }

  print(): string {
    const lines = Object.entries(counters).flatMap(([name, help]) => [
      `# HELP ${name} ${help}`,
      `# TYPE ${name} counter`,
      ...[...(this.series.get(name as CounterName) ?? [])].map(
        ([key, n]) => `${name}{${key}} ${n}`,
      ),
    ]);
    const { rss, heapUsed } = process.memoryUsage();
    lines.push(
      ...printGauge('process_resident_memory_bytes', 'Memory of the process, in bytes', rss),
      ...printGauge('nodejs_heap_used_bytes', 'JavaScript heap in use, in bytes', heapUsed),
    );
    return `${lines.join('\n')}\n`;
  }
}

/** Serves `/metrics` on a port of its own, so that it can stay inside the firewall. */
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

const printGauge = (name: string, help: string, value: number): string[] => [
  `# HELP ${name} ${help}`,
  `# TYPE ${name} gauge`,
  `${name} ${value}`,
];

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };

function labelsText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${value.replace(/[\\"\n]/g, (c) => escapes[c] ?? c)}"`)
    .join(',');
}
