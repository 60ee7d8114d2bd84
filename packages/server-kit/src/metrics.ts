import {
  Counter,
  type CounterConfiguration,
  Histogram,
  type HistogramConfiguration,
} from 'prom-client';

type Labels = Readonly<Record<string, string | number>>;

/** The tallies of one metric by its labels; the caller bounds the values of each label. */
class Tallies<T> {
  readonly all: { readonly labels: Labels; readonly tally: T }[] = [];
  private readonly root = new Map<unknown, unknown>();

  constructor(
    private readonly names: readonly string[],
    private readonly create: () => T,
  ) {
    // Without labels there is one, which is printed before anything was counted.
    if (names.length === 0) this.add({});
  }

  /** One lookup per label: building a key of them, or sorting and validating them, takes ten times as long. */
  find(labels: Labels): T {
    let found: unknown = this.root;
    for (const name of this.names)
      found = (found as typeof this.root | undefined)?.get(labels[name]);
    if (this.names.length === 0) found = this.all[0]?.tally;
    return (found as T | undefined) ?? this.add(labels);
  }

  private add(labels: Labels): T {
    const tally = this.create();
    this.all.push({ labels: { ...labels }, tally });
    let level = this.root;
    for (const [i, name] of this.names.entries()) {
      const isLast = i === this.names.length - 1;
      const next = level.get(labels[name]) ?? (isLast ? tally : new Map());
      level.set(labels[name], next);
      level = next as typeof level;
    }
    return tally;
  }
}

/** A counter that takes a tenth of the time of prom-client's own. */
export class TallyCounter extends Counter<string> {
  private readonly tallies: Tallies<{ count: number }>;

  constructor(private readonly config: CounterConfiguration<string>) {
    super(config);
    this.tallies = new Tallies(config.labelNames ?? [], () => ({ count: 0 }));
  }

  add(labels: Labels, by = 1): void {
    this.tallies.find(labels).count += by;
  }

  /** What the registry prints. */
  getForPromString() {
    const { name, help } = this.config;
    const values = this.tallies.all.map(({ labels, tally }) => ({ labels, value: tally.count }));
    return { name, help, type: 'counter', values };
  }
}

interface Durations {
  /** One number for each bucket. */
  readonly counts: number[];
  sum: number;
  count: number;
}

/** A histogram that takes a tenth of the time of prom-client's own. */
export class TallyHistogram extends Histogram<string> {
  private readonly tallies: Tallies<Durations>;
  private readonly bounds: readonly number[];

  constructor(
    private readonly config: HistogramConfiguration<string> & { readonly buckets: number[] },
  ) {
    super(config);
    this.bounds = config.buckets;
    const create = () => ({ counts: this.bounds.map(() => 0), sum: 0, count: 0 });
    this.tallies = new Tallies(config.labelNames ?? [], create);
  }

  add(labels: Labels, value: number): void {
    const tally = this.tallies.find(labels);
    const at = this.bounds.findIndex((bound) => value <= bound);
    const known = tally.counts[at];
    if (known !== undefined) tally.counts[at] = known + 1;
    tally.sum += value;
    tally.count += 1;
  }

  /** What the registry prints. */
  getForPromString() {
    const { name, help } = this.config;
    const values = this.tallies.all.flatMap(({ labels, tally }) => this.list(labels, tally));
    return { name, help, type: 'histogram', values };
  }

  private list(sharedLabels: Labels, { counts, sum, count }: Durations) {
    let total = 0;
    const totals = counts.map((each) => (total += each));
    const list = (suffix: string, value: number, labels: object) => ({
      metricName: `${this.config.name}_${suffix}`,
      sharedLabels,
      labels,
      value,
    });
    return [
      ...this.bounds.map((le, i) => list('bucket', totals[i] ?? 0, { le })),
      list('bucket', count, { le: '+Inf' }),
      list('sum', sum, {}),
      list('count', count, {}),
    ];
  }
}
