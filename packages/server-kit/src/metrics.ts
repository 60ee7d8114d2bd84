export type Labels = Readonly<Record<string, string>>;

/** What a gauge measures at the moment it is printed. */
export type GaugeReading = number | readonly { readonly labels: Labels; readonly value: number }[];

interface Metric {
  print(): string[];
}

/** The metrics of one process, printed in the Prometheus text format in the order of their creation. */
export class MetricsRegistry {
  private readonly metrics: Metric[] = [];

  counter(name: string, help: string): Counter {
    return this.add(new Counter(name, help));
  }

  /** `bounds` are the inclusive upper limits of the buckets, ascending. */
  histogram(name: string, help: string, bounds: readonly number[]): Histogram {
    return this.add(new Histogram(name, help, bounds));
  }

  gauge(name: string, help: string, read: () => GaugeReading): void {
    this.add({ print: () => printReading({ name, help, type: 'gauge' }, read()) });
  }

  /** A counter whose value is kept elsewhere. */
  externalCounter(name: string, help: string, read: () => GaugeReading): void {
    this.add({ print: () => printReading({ name, help, type: 'counter' }, read()) });
  }

  /** Adds the memory of the process. */
  addProcessGauges(): void {
    const { memoryUsage } = process;
    this.gauge('process_resident_memory_bytes', 'Memory of the process, in bytes', () =>
      memoryUsage.rss(),
    );
    this.gauge(
      'nodejs_heap_used_bytes',
      'JavaScript heap in use, in bytes',
      () => memoryUsage().heapUsed,
    );
  }

  print(): string {
    return `${this.metrics.flatMap((metric) => metric.print()).join('\n')}\n`;
  }

  private add<T extends Metric>(metric: T): T {
    this.metrics.push(metric);
    return metric;
  }
}

/** Counts by labels. The caller bounds how many different labels there are. */
export class Counter implements Metric {
  private readonly series = new Map<string, CounterSeries>();

  constructor(
    private readonly name: string,
    private readonly help: string,
  ) {}

  increment(labels: Labels = {}): void {
    this.with(labels).increment();
  }

  /** The series with these labels, for callers that count often and keep it. */
  with(labels: Labels): CounterSeries {
    const key = formatLabels(labels);
    const series = this.series.get(key) ?? new CounterSeries();
    this.series.set(key, series);
    return series;
  }

  print(): string[] {
    const lines = [...this.series].map(([key, { value }]) => formatSample(this.name, key, value));
    return [...formatHead(this.name, this.help, 'counter'), ...lines];
  }
}

/** One line of a counter. */
export class CounterSeries {
  value = 0;

  increment(): void {
    this.value += 1;
  }
}

/** Counts durations or sizes by labels and bucket. The caller bounds how many different labels there are. */
export class Histogram implements Metric {
  private readonly series = new Map<string, HistogramSeries>();

  constructor(
    private readonly name: string,
    private readonly help: string,
    private readonly bounds: readonly number[],
  ) {}

  observe(labels: Labels, value: number): void {
    this.with(labels).observe(value);
  }

  /** The series with these labels, for callers that observe often and keep it. */
  with(labels: Labels): HistogramSeries {
    const key = formatLabels(labels);
    const series = this.series.get(key) ?? new HistogramSeries(this.bounds);
    this.series.set(key, series);
    return series;
  }

  print(): string[] {
    const lines = [...this.series].flatMap(([key, series]) => series.print(this.name, key));
    return [...formatHead(this.name, this.help, 'histogram'), ...lines];
  }
}

/** The buckets of one set of labels. */
export class HistogramSeries {
  private readonly counts: number[];
  private sum = 0;
  private total = 0;

  constructor(private readonly bounds: readonly number[]) {
    this.counts = bounds.map(() => 0);
  }

  observe(value: number): void {
    const bucket = this.bounds.findIndex((bound) => value <= bound);
    if (bucket >= 0) this.counts[bucket] = (this.counts[bucket] ?? 0) + 1;
    this.sum += value;
    this.total += 1;
  }

  print(name: string, key: string): string[] {
    const prefix = key && `${key},`;
    let below = 0;
    const buckets = this.counts.map((count, i) => {
      below += count;
      return `${name}_bucket{${prefix}le="${this.bounds[i]}"} ${below}`;
    });
    return [
      ...buckets,
      `${name}_bucket{${prefix}le="+Inf"} ${this.total}`,
      formatSample(`${name}_sum`, key, this.sum),
      formatSample(`${name}_count`, key, this.total),
    ];
  }
}

interface MetricHead {
  readonly name: string;
  readonly help: string;
  readonly type: 'gauge' | 'counter';
}

function printReading({ name, help, type }: MetricHead, reading: GaugeReading): string[] {
  const values = typeof reading === 'number' ? [{ labels: {}, value: reading }] : reading;
  const lines = values.map(({ labels, value }) => formatSample(name, formatLabels(labels), value));
  return [...formatHead(name, help, type), ...lines];
}

const formatHead = (name: string, help: string, type: string): string[] => [
  `# HELP ${name} ${help}`,
  `# TYPE ${name} ${type}`,
];

const formatSample = (name: string, key: string, value: number): string =>
  `${name}${key && `{${key}}`} ${value}`;

const SPECIAL = /[\\"\n]/;
const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };

/** Runs for every request, so values that need no escape are not copied. */
function formatLabels(labels: Labels): string {
  let text = '';
  for (const name of Object.keys(labels)) {
    const value = labels[name] ?? '';
    const escaped = SPECIAL.test(value)
      ? value.replaceAll(/[\\"\n]/g, (c) => ESCAPES[c] ?? c)
      : value;
    text += `${text && ','}${name}="${escaped}"`;
  }
  return text;
}
