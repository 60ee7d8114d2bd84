// Finds words that readers of this project should not meet: private vocabulary, stilted phrases, British spelling.
// Prints file, line, word and what to write instead; with --summary the number of hits per package.
// Arguments are the beginnings of paths to check.
import { globSync, readFileSync } from 'node:fs';
import { basename, matchesGlob } from 'node:path';
import ts from 'typescript';

const CODE = [
  '{packages,plugins,examples,compat}/*/{src,test,scripts,template}/**/*.{ts,tsx}',
  '{scripts,bench}/**/*.ts',
  '*.config.ts',
];
const DOCUMENTS = [
  '*.md',
  'docs/**/*.md',
  '{packages,plugins,examples,compat,bench}/**/README.md',
  'packages/web/{index.html,src/**/*.css}',
  'packages/cli/template/**/*.md',
];
// The translations of the page are not English.
const IGNORED =
  /(^|\/)(node_modules|dist|test-output|\.cache)\/|^scripts\/word-list(\.test)?\.ts$|^packages\/web\/src\/i18n\/(de|es|fr|pt|ar|sw)\b/;

interface Rule {
  /** What it matches is the word of the hit. */
  readonly pattern: RegExp;
  readonly instead: string;
}

/** Words of names, which are split at capitals: `CallDesk` is "Call Desk". */
const names: readonly Rule[] = [
  { pattern: /\bdesks?\b/i, instead: 'Pending…' },
  { pattern: /\bseats?\b/i, instead: 'SocketContext' },
  { pattern: /\blanes?\b/i, instead: 'queue' },
  {
    pattern: /\bkeepers?\b|\bkeep (house|runs)\b/i,
    instead: 'start… (startLeaseLoop, startRetention)',
  },
  { pattern: /\bobstacles?\b|\blook at\b/i, instead: 'check…, probe…' },
  { pattern: /\bask for leave\b|\binsists?\b/i, instead: 'callGuard, callRequired' },
  { pattern: /\bin time\b/i, instead: 'withTimeout' },
  { pattern: /\buntil aborted\b/i, instead: 'abortable' },
  { pattern: /\bend with\b/i, instead: 'abortableIterable' },
  { pattern: /\bwhen free\b/i, instead: 'retryWhileBusy' },
  { pattern: /\boffers?\b/i, instead: 'ToolSet' },
  { pattern: /\bnarrowed\b/i, instead: 'restrict' },
  { pattern: /\bis (spent|tired)\b|\btired\b/i, instead: 'isExhausted, hasStopped' },
  { pattern: /\bspoken\b/i, instead: 'hasOutput' },
  { pattern: /\bor refuse\b/i, instead: 'failClosed' },
  { pattern: /\bpaid calls\b/i, instead: 'creditMiddleware' },
  { pattern: /\bflights\b/i, instead: 'SingleFlight' },
  { pattern: /^\w+.* of$/i, instead: 'a verb: parse…, read…, build…, find…, to…, get…, count…' },
];

/** Words of the names of types, beside those of all names. */
const types: readonly Rule[] = [
  { pattern: /\b(faults?|refusals?|problems?)$/i, instead: '…Error' },
  { pattern: /\w parts$/i, instead: '…Deps' },
  { pattern: /^audience$/i, instead: 'SessionKey' },
  {
    pattern: /^(questions|answers|exchange)$/i,
    instead: 'QueryParser, QueryService, RequestContext',
  },
];

/** Words of names and of everything a person reads. */
const words: readonly Rule[] = [
  { pattern: /\b(un)?told\b/i, instead: 'reported, received, notified, asked' },
  { pattern: /\btell(s|ing)?\b/i, instead: 'reports, sends, says' },
  { pattern: /\bstrays?\b/i, instead: 'unhandled' },
  { pattern: /\bbrought\b|\bbring(s|ing)?\b/i, instead: 'provides, contributes' },
  { pattern: /\b(im)?patien(ce|t|tly)\b/i, instead: 'timeout, timer' },
  { pattern: /\bgiv(e|es|en|ing) up\b/i, instead: 'stops, times out' },
  { pattern: /\bcut(s|ting)?\b/i, instead: 'cancel, truncate, interrupt' },
  { pattern: /\bat work\b/i, instead: 'running, active' },
  { pattern: /\bmend(s|ed|ing)?\b/i, instead: 'fix' },
];

/** Phrases of everything a person reads. */
const phrases: readonly Rule[] = [
  { pattern: /\(contract [A-Z]\d/, instead: 'the rule itself' },
  { pattern: /\b(who|what)ever\b/i, instead: 'the caller, any' },
  {
    pattern: /\b(some|any|every)body\b|\bsomeone\b|\bnobody\b|\bno one\b/i,
    instead: 'a user, no caller, each client',
  },
  { pattern: /\bunder ?way\b/i, instead: 'in progress' },
  { pattern: /\bgo(es|ing)? on\b|\bwent on\b/i, instead: 'continue' },
  { pattern: /\bhears? of\b/i, instead: 'receives' },
  { pattern: /\basks? for leave\b/i, instead: 'requests permission' },
  { pattern: /(?<!\bthere )\bis no (?!longer\b|more\b|such\b)\w+/i, instead: 'is not a …' },
  { pattern: /\bof (its|their|his|her) own\b/i, instead: 'its own …, separate' },
  { pattern: /\banew\b/i, instead: 'again' },
  { pattern: /\bthrice\b/i, instead: 'three times' },
  { pattern: /\bwhose turn\b/i, instead: 'the user of the turn' },
  { pattern: /\bso far\b/i, instead: 'until now, or nothing' },
  { pattern: /\bst(ands|ood) for\b/i, instead: 'represents' },
  { pattern: /\bkn(ow|ows|ew) of\b/i, instead: 'knows, has' },
  { pattern: /\bas it stands\b/i, instead: 'unchanged' },
  {
    pattern: /\bhanded over\b|\bhas its say\b|\btakes? its place\b|\bplace to wait\b/i,
    instead: 'slot, queue, limit, pending',
  },
  { pattern: /\bleast important\b/i, instead: 'minimum' },
  { pattern: /\bjoining again\b/i, instead: 'reconnecting' },
  { pattern: /\bis not one\b(?! of\b)/i, instead: 'invalid …' },
  {
    pattern:
      /(?:\b|_)(behaviou|colou|favou|honou|neighbou)r\w*|\b\w+(?<!\b(?:prom|exerc|rev|adv|superv|improv|surpr|other|like|prec|conc|no))(alise|orise|isation|ognise|anise)[ds]?\b|\bwhilst\b|\bamongst\b|\bcatalogues?\b|\bcentred?\b|\blicences?\b/i,
    instead: 'American spelling',
  },
];

interface Exception {
  readonly word: RegExp;
  readonly path: string;
  readonly reason: string;
}

/** Hits that are right where they are. */
const exceptions: readonly Exception[] = [
  { word: /^(any|one|all|multiple)Of$/, path: '**', reason: 'names of JSON Schema' },
  { word: /^((lastI|i)ndex|value|getPrototype)Of$/, path: '**', reason: 'names of JavaScript' },
  { word: /^(\w*M|m)essage-?Parts$/i, path: 'packages/host/**', reason: 'parts of a message' },
  { word: /^(nobody|everybody)$/i, path: 'packages/gateway/**', reason: 'values that nodes print' },
];

export interface Hit {
  readonly path: string;
  readonly line: number;
  readonly word: string;
  readonly instead: string;
}

/** Finds hits in one file. */
export function checkWords(path: string, text: string): Hit[] {
  const pieces = /\.tsx?$/.test(path) ? readCode(path, text) : readLines(text);
  const fileName = { kind: 'name', text: basename(path).replace(/\..*$/, ''), line: 1 } as const;
  return [fileName, ...pieces].flatMap((piece) =>
    findWords(piece)
      .filter(({ word }) => !isException(path, piece.kind === 'text' ? word : piece.text))
      .map((hit) => ({ path, ...hit })),
  );
}

const isException = (path: string, word: string): boolean =>
  exceptions.some((each) => each.word.test(word) && matchesGlob(path, each.path));

interface Piece {
  readonly kind: 'name' | 'type' | 'text';
  readonly text: string;
  readonly line: number;
}

function findWords({ kind, text, line }: Piece): Omit<Hit, 'path'>[] {
  if (kind === 'text')
    return [...words, ...phrases].flatMap(({ pattern, instead }) =>
      [...text.matchAll(new RegExp(pattern, 'gi'))].map((match) => ({
        line: line + text.slice(0, match.index).split('\n').length - 1,
        word: match[0].replace(/\s+/g, ' '),
        instead,
      })),
    );
  const split = splitName(text);
  return [...words, ...names, ...(kind === 'type' ? types : [])]
    .filter(({ pattern }) => pattern.test(split))
    .map(({ instead }) => ({ line, word: text, instead }));
}

/** `CallDesk`, `call-desk` and `CALL_DESK` are all "call desk". */
const splitName = (name: string): string =>
  name
    .replace(/[_$#-]+/g, ' ')
    .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .toLowerCase()
    .trim();

const readLines = (text: string): Piece[] =>
  text.split('\n').map((line, i) => ({ kind: 'text', text: line, line: i + 1 }));

/** The names that a file declares, its strings, the text of its elements and its comments. */
function readCode(path: string, text: string): Piece[] {
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const lineAt = (position: number) => source.getLineAndCharacterOfPosition(position).line + 1;
  const pieces: Piece[] = readComments(source, lineAt);
  const visit = (node: ts.Node): void => {
    const kind = classify(node);
    if (kind)
      pieces.push({ kind, text: (node as ts.Identifier).text, line: lineAt(node.getStart()) });
    ts.forEachChild(node, visit);
  };
  visit(source);
  return pieces;
}

function classify(node: ts.Node): Piece['kind'] | undefined {
  if (ts.isIdentifier(node) || ts.isPrivateIdentifier(node)) return classifyName(node);
  const isText =
    ts.isStringLiteralLike(node) ||
    ts.isTemplateHead(node) ||
    ts.isTemplateMiddleOrTemplateTail(node) ||
    ts.isJsxText(node);
  return isText && !isModuleName(node) ? 'text' : undefined;
}

const isModuleName = ({ parent }: ts.Node): boolean =>
  ts.isImportDeclaration(parent) ||
  ts.isExportDeclaration(parent) ||
  ts.isImportTypeNode(parent.parent);

/** A name counts where it is declared, so that names of libraries do not. */
function classifyName(node: ts.Identifier | ts.PrivateIdentifier): 'name' | 'type' | undefined {
  const { parent } = node;
  const isDeclared =
    (ts.isVariableDeclaration(parent) ||
      ts.isFunctionLike(parent) ||
      ts.isParameter(parent) ||
      ts.isClassLike(parent) ||
      ts.isInterfaceDeclaration(parent) ||
      ts.isTypeAliasDeclaration(parent) ||
      ts.isPropertyDeclaration(parent) ||
      ts.isPropertySignature(parent) ||
      ts.isPropertyAssignment(parent) ||
      ts.isBindingElement(parent)) &&
    parent.name === node;
  if (!isDeclared) return undefined;
  const isType =
    ts.isClassLike(parent) ||
    ts.isInterfaceDeclaration(parent) ||
    ts.isTypeAliasDeclaration(parent);
  return isType ? 'type' : 'name';
}

function readComments(source: ts.SourceFile, lineAt: (position: number) => number): Piece[] {
  const found = new Map<number, Piece>();
  const visit = (node: ts.Node): void => {
    const ranges = [
      ...(ts.getLeadingCommentRanges(source.text, node.getFullStart()) ?? []),
      ...(ts.getTrailingCommentRanges(source.text, node.getEnd()) ?? []),
    ];
    if (!ts.isJsxText(node))
      for (const { pos, end } of ranges)
        found.set(pos, { kind: 'text', text: source.text.slice(pos, end), line: lineAt(pos) });
    for (const child of node.getChildren(source)) visit(child);
  };
  visit(source);
  return [...found.values()];
}

function summarize(hits: readonly Hit[]): string {
  const counts = Map.groupBy(
    hits,
    ({ path }) => /^(packages|plugins)\/[^/]+|^[^/]+/.exec(path)?.[0],
  );
  return [...counts]
    .toSorted(([, a], [, b]) => b.length - a.length)
    .map(([folder, found]) => `${String(found.length).padStart(6)}  ${folder}`)
    .join('\n');
}

function main(args: readonly string[]): number {
  const prefixes = args.filter((arg) => !arg.startsWith('--'));
  const paths = [...CODE, ...DOCUMENTS]
    .flatMap((pattern) => globSync(pattern))
    .filter((path) => !IGNORED.test(path))
    .filter((path) => prefixes.length === 0 || prefixes.some((prefix) => path.startsWith(prefix)));
  const hits = [...new Set(paths)]
    .toSorted()
    .flatMap((path) => checkWords(path, readFileSync(path, 'utf8')));
  if (args.includes('--summary')) console.log(summarize(hits));
  else
    for (const { path, line, word, instead } of hits)
      console.log(`${path}:${line}  ${word}  → ${instead}`);
  console.log(`${hits.length} hits`);
  return hits.length === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main(process.argv.slice(2));
