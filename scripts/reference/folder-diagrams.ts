import { cruise, type ICruiseResult } from 'dependency-cruiser';
import extractDepcruiseOptions from 'dependency-cruiser/config-utl/extract-depcruise-options';

type Arrow = readonly [from: string, to: string];

/** Name of a diagram → its Mermaid source, drawn from what dependency-cruiser finds. */
export async function folderDiagrams(): Promise<Readonly<Record<string, string>>> {
  const { modules } = await findImports();
  return {
    packages: draw(arrowsBetween(modules, /^(?:packages\/([^/]+)|(plugins)\/[^/]+)\/src\//)),
    host: draw(arrowsBetween(modules, /^packages\/host\/src\/(?!app\/)([^/]+)\//)),
  };
}

async function findImports(): Promise<ICruiseResult> {
  const { ruleSet, ...options } = await extractDepcruiseOptions('./.dependency-cruiser.cjs');
  const { output } = await cruise(['packages', 'plugins'], {
    ...options,
    validate: false,
    includeOnly: { path: '^(packages|plugins)/[^/]+/src/' },
    outputType: 'json',
  });
  return JSON.parse(output as string);
}

/** Which folder imports which; a folder is what the pattern captures of a path. */
function arrowsBetween(modules: ICruiseResult['modules'], folder: RegExp): Arrow[] {
  const folderOf = (path: string) => folder.exec(path)?.slice(1).find(Boolean);
  const found = new Map<string, Arrow>();
  for (const { source, dependencies } of modules)
    for (const { resolved } of dependencies) {
      const [from, to] = [folderOf(source), folderOf(resolved)];
      if (from && to && from !== to) found.set(`${from} ${to}`, [from, to]);
    }
  return [...found.values()];
}

/** Leaves out arrows that follow from others, or nobody could read the rest. */
function draw(arrows: readonly Arrow[]): string {
  const lines = arrows
    .filter(([from, to]) => !nextTo(from, arrows).some((next) => leadsTo(next, to, arrows)))
    .map(([from, to]) => `  ${from} --> ${to}`);
  return ['flowchart TD', ...lines.toSorted()].join('\n');
}

const nextTo = (from: string, arrows: readonly Arrow[]) =>
  arrows.filter(([start]) => start === from).map(([, end]) => end);

/** Whether one gets from a folder to another in one step or more; there are no cycles. */
const leadsTo = (from: string, to: string, arrows: readonly Arrow[]): boolean =>
  nextTo(from, arrows).some((next) => next === to || leadsTo(next, to, arrows));
