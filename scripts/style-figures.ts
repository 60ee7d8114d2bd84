// Prints how long files and functions are, beside what they should be at most; fails where they are longer.
import { globSync, readFileSync } from 'node:fs';
import ts from 'typescript';

const SOURCES = ['{packages,plugins,examples}/*/src/**/*.{ts,tsx}', '{scripts,bench}/**/*.ts'];
const NO_PRODUCT = /\.(test|d)\.tsx?$|\/(node_modules|dist|test-support)\//;

const PARSING: ts.CreateSourceFileOptions = {
  languageVersion: ts.ScriptTarget.Latest,
  jsDocParsingMode: ts.JSDocParsingMode.ParseNone,
};

interface Figure {
  readonly name: string;
  readonly lines: number;
  /** The most it may be, where there is a target. */
  readonly target?: number;
}

/** The figures of these files, each given by its path. */
export function styleFigures(paths: readonly string[]): Figure[] {
  const sources = paths.map((path) =>
    ts.createSourceFile(path, readFileSync(path, 'utf8'), PARSING),
  );
  const files = ascending(sources.map((source) => source.text.trimEnd().split('\n').length));
  const functions = ascending(sources.flatMap((source) => functionLengths(source, source)));
  return [
    { name: 'file, median', lines: quantile(files, 0.5), target: 80 },
    { name: 'file, p90', lines: quantile(files, 0.9), target: 200 },
    { name: 'file, longest', lines: quantile(files, 1) },
    { name: 'function, median', lines: quantile(functions, 0.5) },
    { name: 'function, p90', lines: quantile(functions, 0.9), target: 20 },
    { name: 'function, longest', lines: quantile(functions, 1) },
  ];
}

/** The lines of every function with a body in braces; those that are one expression count with what is around them. */
function functionLengths(node: ts.Node, source: ts.SourceFile): number[] {
  const lengths: number[] = [];
  if (ts.isFunctionLike(node) && hasBlock(node)) lengths.push(linesOf(node, source));
  ts.forEachChild(node, (child) => {
    lengths.push(...functionLengths(child, source));
  });
  return lengths;
}

const hasBlock = (node: ts.SignatureDeclaration): boolean =>
  'body' in node && node.body !== undefined && ts.isBlock(node.body);

function linesOf(node: ts.Node, source: ts.SourceFile): number {
  const lineAt = (position: number) => source.getLineAndCharacterOfPosition(position).line;
  return lineAt(node.end) - lineAt(node.getStart(source)) + 1;
}

const ascending = (lengths: readonly number[]) => lengths.toSorted((a, b) => a - b);

/** The smallest length that this share does not exceed. */
const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;

function verdictOn({ lines, target }: Figure): string {
  if (target === undefined) return '';
  return `at most ${target}: ${lines <= target ? 'met' : 'missed'}`;
}

function print(): number {
  const paths = SOURCES.flatMap((pattern) => globSync(pattern)).filter((p) => !NO_PRODUCT.test(p));
  const figures = styleFigures(paths);
  console.log(`${paths.length} product sources; lines of a`);
  for (const figure of figures)
    console.log(
      `  ${figure.name.padEnd(18)}${String(figure.lines).padStart(5)}  ${verdictOn(figure)}`.trimEnd(),
    );
  return figures.some(({ lines, target = lines }) => lines > target) ? 1 : 0;
}

if (import.meta.main) process.exitCode = print();
