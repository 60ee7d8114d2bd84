// Prints how many product files there are and how long files and functions are; with --message, how many of them one message runs.
import { globSync, readFileSync } from 'node:fs';
import ts from 'typescript';

const SOURCES = ['{packages,plugins,examples}/*/src/**/*.{ts,tsx}', '{scripts,bench}/**/*.ts'];
const NOT_PRODUCT = /\.(test|d)\.tsx?$|\/(node_modules|dist|test|test-support)\//;

const PARSING: ts.CreateSourceFileOptions = {
  languageVersion: ts.ScriptTarget.Latest,
  jsDocParsingMode: ts.JSDocParsingMode.ParseNone,
};

interface Figure {
  readonly name: string;
  readonly value: number;
}

/** Measures the files with these paths. */
export function measureStyle(paths: readonly string[]): Figure[] {
  const sources = paths.map((path) =>
    ts.createSourceFile(path, readFileSync(path, 'utf8'), PARSING),
  );
  const files = sortAscending(sources.map((source) => source.text.trimEnd().split('\n').length));
  const functions = sortAscending(sources.flatMap((source) => measureFunctions(source, source)));
  return [
    { name: 'product files', value: paths.length },
    { name: 'file lines, median', value: quantile(files, 0.5) },
    { name: 'file lines, p90', value: quantile(files, 0.9) },
    { name: 'file lines, longest', value: quantile(files, 1) },
    { name: 'function lines, median', value: quantile(functions, 0.5) },
    { name: 'function lines, p90', value: quantile(functions, 0.9) },
    { name: 'function lines, longest', value: quantile(functions, 1) },
  ];
}

/** Lines of every function with a body in braces; functions that are one expression count as part of the code around them. */
function measureFunctions(node: ts.Node, source: ts.SourceFile): number[] {
  const lengths: number[] = [];
  if (ts.isFunctionLike(node) && hasBlock(node)) lengths.push(countLines(node, source));
  ts.forEachChild(node, (child) => {
    lengths.push(...measureFunctions(child, source));
  });
  return lengths;
}

const hasBlock = (node: ts.SignatureDeclaration): boolean =>
  'body' in node && node.body !== undefined && ts.isBlock(node.body);

/** Blank lines do not count, as in Biome's limits. */
function countLines(node: ts.Node, source: ts.SourceFile): number {
  return node
    .getText(source)
    .split('\n')
    .filter((line) => line.trim()).length;
}

const sortAscending = (lengths: readonly number[]) => lengths.toSorted((a, b) => a - b);

/** The smallest length that this share does not exceed. */
const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;

const formatFigure = ({ name, value }: Figure): string =>
  `${name.padEnd(24)}${String(value).padStart(5)}`;

function main(): void {
  const paths = SOURCES.flatMap((pattern) => globSync(pattern)).filter((p) => !NOT_PRODUCT.test(p));
  for (const figure of measureStyle(paths)) console.log(formatFigure(figure));
}

if (import.meta.main) {
  if (process.argv.includes('--message')) await import('../bench/message.ts');
  else main();
}
