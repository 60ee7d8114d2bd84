import { expect, it } from 'vitest';
import { hostTables } from './index.js';

it('tables of which archives have rows say of each column what is accepted; the host fills the others', () => {
  const filled = hostTables.flatMap(({ name, columns }) => {
    const entries = Object.entries(columns);
    if (!entries.some(([, { options }]) => options.imported)) return [];
    return entries.flatMap(([column, { options }]) =>
      options.imported ? [] : [`${name}.${column}`],
    );
  });
  expect(filled.filter((column) => !column.endsWith('.owner'))).toEqual([
    'sessions.oracle_did',
    'sessions.oracle_name',
    'sessions.oracle_entity_did',
  ]);
});
