// Puts mutants into code: by Stryker's mutators, and by those for queries, which Stryker's only break.
import { types as t } from '@babel/core';
import { Instrumenter } from '@stryker-mutator/instrumenter';
import { allMutators } from './node_modules/@stryker-mutator/instrumenter/dist/src/mutators/mutate.js';

const CONDITIONS = new Set(['where', 'whereRef', 'having', 'onRef']);
const REMOVED = new Set([...CONDITIONS, 'limit', 'distinct', 'on']);

/** Removes a condition or a limit from a chain of Kysely calls. */
const queryCondition = {
  name: 'QueryCondition',
  *mutate({ node }) {
    if (!t.isCallExpression(node) || !t.isMemberExpression(node.callee)) return;
    const { object, property } = node.callee;
    if (!t.isIdentifier(property)) return;
    const removed = t.isCallExpression(object) ? REMOVED : CONDITIONS;
    if (removed.has(property.name)) yield t.cloneNode(object, true);
  },
};

/** Makes `column = ${value}` in an SQL template true for every row. */
const sqlCondition = {
  name: 'SqlCondition',
  *mutate({ node }) {
    if (!t.isTaggedTemplateExpression(node) || !t.isIdentifier(node.tag, { name: 'sql' })) return;
    for (const [index, quasi] of node.quasi.quasis.slice(0, -1).entries()) {
      const [match, column] = /([\w.]+) = $/.exec(quasi.value.raw) ?? [];
      if (!match) continue;
      const clone = t.cloneNode(node, true);
      const [before, after] = clone.quasi.quasis.slice(index, index + 2);
      setText(before, `${before.value.raw.slice(0, -match.length)}${column} in (${column}, `);
      setText(after, `)${after.value.raw}`);
      yield clone;
    }
  },
};

function setText(quasi, raw) {
  quasi.value = { raw, cooked: raw };
}

allMutators.push(queryCondition, sqlCondition);

const QUERY_CALLS = new Set([
  ...REMOVED,
  ...['selectFrom', 'select', 'insertInto', 'updateTable', 'deleteFrom', 'orderBy', 'groupBy'],
  ...['column', 'columns', 'returning', 'innerJoin', 'leftJoin', 'ref', 'table', 'e', 'eb', 'as'],
]);
const TEXT_CALLS = new Set(['describe', 'meta', 'trace', 'debug', 'info', 'warn', 'error', 'fatal']);

/** An empty name breaks every query, and an empty text of a log or document nothing: neither says anything about tests. */
const namesAndTexts = {
  shouldIgnore(path) {
    if (!path.isStringLiteral() && !path.isTemplateLiteral()) return undefined;
    const call = path.findParent((parent) => parent.isCallExpression() || parent.isFunction());
    if (!call?.isCallExpression()) return undefined;
    const { callee } = call.node;
    const name = t.isMemberExpression(callee) ? callee.property.name : callee.name;
    if (QUERY_CALLS.has(name)) return 'a name in a query';
    return TEXT_CALLS.has(name) ? 'a text of a log or document' : undefined;
  },
};

const ignore = () => {};
const logger = { info: ignore, debug: ignore, warn: ignore, isDebugEnabled: () => false };

/** The files with all their mutants, of which `globalThis.__stryker__.activeMutant` selects one. */
export function instrument(files) {
  const options = { plugins: null, excludedMutations: [], ignorers: [namesAndTexts] };
  const wanted = files.map((file) => ({ ...file, mutate: true }));
  return new Instrumenter(logger).instrument(wanted, options);
}
