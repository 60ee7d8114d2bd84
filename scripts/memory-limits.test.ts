import { globSync, readFileSync } from 'node:fs';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

/** Collections in these files live as long as one message, turn, request or startup, which have their own limits. */
const SHORT_LIVED = [
  'packages/host/src/{agent/{run-agent,run-tools,model-call,call-recovery,context-budget},models/**/*}.ts',
  'packages/host/src/turns/{plugins/{turn-context,middlewares},run/message-parts}.ts',
  'packages/host/src/{plugins/*,app/openapi,app/serve-openapi,app/shutdown}.ts',
  'packages/gateway/src/{binding,json}/**/*.ts',
  'plugins/slack/src/mrkdwn.ts',
  'plugins/openai-api/src/output-items.ts',
];

/** Collections in these files grow only with the operator's configuration: plugins, nodes, a chain's schema. */
const CONFIGURED = [
  'packages/gateway/src/{openapi,routes,schema,nodes}/**/*.ts',
  'packages/gateway/src/http/{docs-page,server}.ts',
  'packages/grpc-client/src/grpc-client.ts',
  'packages/plugin-kit/src/{host,testing}/**/*.ts',
  'packages/server-kit/src/docs-page.ts',
  'plugins/{chat-page,claims}/src/*.ts',
];

/** A collection that is listed where it is used. */
const LISTENERS = 'packages/server-kit/src/listeners.ts';

const SOURCES =
  '{packages/{host,gateway,grpc-client,protocol,ucan,safe-fetch,server-kit,plugin-kit},plugins/*}/src/**/*.ts';
const GROWING = new Set([
  'ActiveRuns',
  'Listeners',
  'LruMap',
  'Map',
  'RateLimiter',
  'Set',
  'SummaryCache',
]);

/** `file#name` of each row: its first cell is the file below packages or plugins, its second the names. */
function readTable(): string[] {
  const section =
    readFileSync('docs/security.md', 'utf8').split('## What callers can fill')[1] ?? '';
  return section
    .split('\n')
    .map((line) => line.split('|').map((cell) => [...cell.matchAll(/`([^`]+)`/g)]))
    .flatMap(([, file = [], names = []]) =>
      file.flatMap(([, path]) => names.map(([, name]) => `${path}#${name}`)),
    )
    .sort();
}

function findCollections(): string[] {
  const patterns = [...SHORT_LIVED, ...CONFIGURED, LISTENERS];
  const excluded = new Set(patterns.flatMap((pattern) => globSync(pattern)));
  return globSync(SOURCES)
    .filter((path) => !/\.test\.ts$|\/test-support\//.test(path) && !excluded.has(path))
    .flatMap((path) => collectionsIn(path).map((name) => `${shorten(path)}#${name}`))
    .sort();
}

const shorten = (path: string): string => path.replace(/^packages\//, '').replace('/src/', '/');

/** Fields, module constants and what `create…` functions close over; a WeakMap's entries go with their keys. */
function collectionsIn(path: string): string[] {
  const source = ts.createSourceFile(
    path,
    readFileSync(path, 'utf8'),
    ts.ScriptTarget.Latest,
    true,
  );
  const names: string[] = [];
  const visit = (node: ts.Node, isLasting: boolean): void => {
    if (ts.isPropertyDeclaration(node) && grows(node.initializer)) names.push(getName(node.name));
    if (isAssignedCollection(node)) names.push(getName(node.left.name));
    if (ts.isVariableDeclaration(node) && isLasting && grows(node.initializer))
      names.push(getName(node.name));
    const lasts = isLasting && (!ts.isFunctionLike(node) || isFactory(node));
    ts.forEachChild(node, (child) => visit(child, lasts));
  };
  visit(source, true);
  return names.filter((name) => !isConstant(name));
}

const getName = (node: ts.Node): string => node.getText().replace('#', '');

const isFactory = (node: ts.Node): boolean =>
  ts.isFunctionDeclaration(node) && /^create/.test(node.name?.text ?? '');

function isAssignedCollection(
  node: ts.Node,
): node is ts.BinaryExpression & { left: ts.PropertyAccessExpression } {
  return (
    ts.isBinaryExpression(node) &&
    ts.isPropertyAccessExpression(node.left) &&
    node.left.expression.kind === ts.SyntaxKind.ThisKeyword &&
    grows(node.right) &&
    ts.isNewExpression(node.right)
  );
}

/** Constants, such as an empty default list, do not grow. */
const isConstant = (name: string): boolean => name === name.toUpperCase();

/** An empty array, a map or a set that starts empty, or a cache. */
function grows(value: ts.Expression | undefined): boolean {
  if (!value) return false;
  if (ts.isArrayLiteralExpression(value)) return value.elements.length === 0;
  if (!ts.isNewExpression(value) || !GROWING.has(value.expression.getText())) return false;
  return !['Map', 'Set'].includes(value.expression.getText()) || !value.arguments?.length;
}

describe('docs/security.md, "What callers can fill"', () => {
  const found = findCollections();
  const documented = readTable();

  it('lists every collection that outlives a request and grows with what callers send', () => {
    expect(found.filter((name) => !documented.includes(name))).toEqual([]);
  });

  it('lists only collections that exist', () => {
    expect(documented.filter((name) => !found.includes(name))).toEqual([]);
  });
});
