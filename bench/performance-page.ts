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
${memorySection}`;
}

/** Measured by hand with `npm run bench:soak`, which takes too long to be part of every run. */
const memorySection = `
## Memory over time

\`npm run bench:soak -- 30\` sends a host 50 requests a second for 30 minutes (2 by default), a mix of turns as JSON and as streams,
lists and deleted sessions, and prints its memory every ten seconds with the slope after the warm-up. Two runs of two minutes, on a
machine that was busy with other things:

| | minute 0.2 | 0.8 | 1.4 | 1.7 | 1.9 |
| --- | --- | --- | --- | --- | --- |
| resident memory (RSS), MB | 190 | 244 | 286 | 294 | 188 |
| heap that V8 holds (heapTotal), MB | 109 | 191 | 206 | 213 | 89 |
| heap in use (heapUsed), MB | 64 | 107 | 111 | 127 | 51 |
| outside of the heap (external), MB | 11 | 12 | 12 | 12 | 11 |
| RSS with \`MALLOC_ARENA_MAX=1\`, MB | 189 | 269 | 284 | 293 | 182 |

RSS rises for minutes and then falls by a third at once. What rises is memory that V8 holds for its heap: as long as
there is enough of it, V8 collects the young generation only and lets the old one grow; the next full collection gives the
pages back to the system. About 64 MB of RSS is program code, which is mapped from files and constant, and what Node allocates
beside the heap stays the same, so that the allocator is not the reason: with a single malloc arena the curve is the same.
A leak would show in the lowest heapUsed after a full collection, which the slope of a long run tells.
To bound the heap of a host set \`NODE_OPTIONS=--max-old-space-size=256\` (in MB).
`;
