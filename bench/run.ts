// Runs all benchmarks, one after the other, and keeps their ratios in docs/performance.md; the names of some run only those.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import type { Figure } from './parts/figure.ts';
import { machineNow } from './parts/machine.ts';
import { type Benchmark, performancePage, ratios } from './performance-page.ts';

const NAMES = ['auth', 'turn', 'events', 'gateway', 'start'];
const PAGE = 'docs/performance.md';

/** In a process of its own, so that none finds what another left behind. */
async function run(name: string): Promise<Benchmark> {
  console.log(`\n# ${name}\n`);
  const child = fork(new URL(`./${name}/run.ts`, import.meta.url));
  let figures: readonly Figure[] = [];
  child.on('message', (told: { figures: readonly Figure[] }) => {
    figures = told.figures;
  });
  const [code] = await once(child, 'exit');
  if (code !== 0 || figures.length === 0) throw new Error(`the benchmark ${name} failed`);
  return { name, figures };
}

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !NAMES.includes(name));
if (unknown.length > 0) throw new Error(`no benchmark ${unknown.join(', ')}: ${NAMES.join(', ')}`);

const machine = machineNow();
const benchmarks: Benchmark[] = [];
for (const name of wanted.length > 0 ? wanted : NAMES) benchmarks.push(await run(name));
console.log(`\n${ratios(benchmarks)}`);
if (wanted.length === 0) {
  writeFileSync(PAGE, performancePage(benchmarks, machine));
  console.log(`\nWritten to ${PAGE}`);
}
