import type { Figure } from './parts/figure.ts';
import { figureRow } from './parts/figure-table.ts';
import { table } from './parts/markdown.ts';

export interface Benchmark {
  readonly name: string;
  readonly figures: readonly Figure[];
}

/** All figures of all benchmarks in one table. */
export function ratios(benchmarks: readonly Benchmark[]): string {
  const head = ['benchmark', 'figure', 'ours', 'beside it', 'ratio', 'target'];
  const rows = benchmarks.flatMap(({ name, figures }) =>
    figures.map((figure) => [name, ...figureRow(figure)]),
  );
  return table([head, ...rows]);
}

/** What docs/performance.md says. */
export function performancePage(benchmarks: readonly Benchmark[], machine: string): string {
  return `# Performance

Made by \`npm run bench\`, which runs every benchmark and writes this page. Machines differ and so do
their moods: what counts is the ratio to what ran beside it, in the same minutes on the same machine.

${ratios(benchmarks)}

Measured on ${machine}. Servers, models and those who ask them share its cores.

| Benchmark | Command | What runs beside it |
| --- | --- | --- |
| auth | \`npm run bench:auth\` | ucanto's own validator; a route of the host that needs no token |
| turn | \`npm run bench:turn\` | a bare server that stores the same rows and asks the same model by fetch, with no check of the caller, no validation and no log |
| events | \`npm run bench:events\` | Socket.IO alone, which tells the same events and proves nobody |
| gateway | \`npm run bench:gateway\` | the same job made of node:http, grpc-js and protobuf-es |
| start | \`npm run bench:start\` | a server of node:http that does nothing else |
`;
}
