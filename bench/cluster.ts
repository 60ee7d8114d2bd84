// Several hosts on one PostgreSQL: turns per second and concurrent streams of 1, 2 and 3 hosts; how long another host
// takes to abort a turn, to show its frames and to close the turns of a dead host; what storing frames costs;
// and how much space a turn needs.
import '../packages/host/test/support/source-hooks.ts';
import { describeMachine, type Figure, formatFigures, reportFigures } from './support/figures.ts';

// Loaded only now: the hooks resolve what the support of the tests imports.
const { withPostgres } = await import('./cluster/hosts.ts');
const { measureFrameStorage, measureSpace } = await import('./cluster/frame-storage.ts');
const { measureCluster } = await import('./cluster/measure.ts');

const machine = describeMachine();
const figures: Figure[] = [];
for (const [title, measure] of [
  ['storing frames', measureFrameStorage],
  ['space', measureSpace],
  ['several hosts', measureCluster],
] as const) {
  const measured = await withPostgres(measure);
  console.log(`${formatFigures(title, measured)}\n`);
  figures.push(...measured);
}
console.log(`Measured on ${machine}`);
await reportFigures(figures);
