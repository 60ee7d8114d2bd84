import { cruise, type ICruiseResult } from 'dependency-cruiser';
import extractDepcruiseOptions from 'dependency-cruiser/config-utl/extract-depcruise-options';

type Arrow = readonly [from: string, to: string];

/** Draws the imports between folders: name of the diagram → Mermaid source. */
export async function drawFolders(): Promise<Readonly<Record<string, string>>> {
  const { modules } = await findImports();
  return {
    packages: draw(findArrows(modules, /^(?:packages\/([^/]+)|(plugins)\/[^/]+)\/src\//)),
    host: draw(findArrows(modules, /^packages\/host\/src\/(?!app\/)([^/]+)\//)),
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

/** Which folder imports which; the pattern captures the folder of a path. */
function findArrows(modules: ICruiseResult['modules'], folder: RegExp): Arrow[] {
  const findFolder = (path: string) => folder.exec(path)?.slice(1).find(Boolean);
  const found = new Map<string, Arrow>();
  for (const { source, dependencies } of modules)
    for (const { resolved } of dependencies) {
      const [from, to] = [findFolder(source), findFolder(resolved)];
      if (from && to && from !== to) found.set(`${from} ${to}`, [from, to]);
    }
  return [...found.values()];
}

/** Leaves out arrows that follow from others, for readability. */
function draw(arrows: readonly Arrow[]): string {
  const lines = arrows
    .filter(([from, to]) => !listNext(from, arrows).some((next) => leadsTo(next, to, arrows)))
    .map(([from, to]) => `  ${from} --> ${to}`);
  return ['flowchart TD', ...lines.toSorted()].join('\n');
}

const listNext = (from: string, arrows: readonly Arrow[]) =>
  arrows.filter(([start]) => start === from).map(([, end]) => end);

/** Whether a path leads from one folder to the other; there are no cycles. */
const leadsTo = (from: string, to: string, arrows: readonly Arrow[]): boolean =>
  listNext(from, arrows).some((next) => next === to || leadsTo(next, to, arrows));
