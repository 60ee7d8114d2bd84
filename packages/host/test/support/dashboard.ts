import { readFileSync } from 'node:fs';

interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string }[];
  }[];
}

const SELECTOR = /\b((?:sibyl|process|nodejs)_[a-z0-9_]+)(?:\{([^}]*)\})?/g;
const MATCHER = /(\w+)(=~|=)"([^"]*)"/g;

/** What the panels of the Grafana dashboard select, without the host. */
const selectors = (
  JSON.parse(readFileSync('deploy/grafana-dashboard.json', 'utf8')) as Dashboard
).panels.flatMap(({ title, targets }) =>
  targets.flatMap(({ expr }) =>
    [...expr.matchAll(SELECTOR)].map(([, name = '', matchers = '']) => ({
      title,
      name,
      labels: [...matchers.matchAll(MATCHER)]
        .filter(([, label]) => label !== 'instance')
        .map(([, label, , value]) => `${label}="${value}"`),
    })),
  ),
);

/** The series of a host that panels show, with their values. */
export async function readShownSeries(metricsPort: number | string): Promise<Map<string, number>> {
  const text = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  const series = [...text.matchAll(/^([a-z0-9_]+)(\{.*\})? (\S+)$/gm)];
  return new Map(
    series
      .filter(([, name, labels = '']) =>
        selectors.some(
          (each) => each.name === name && each.labels.every((label) => labels.includes(label)),
        ),
      )
      .map(([, name, labels = '', value]) => [`${name}${labels}`, Number(value)] as const),
  );
}
