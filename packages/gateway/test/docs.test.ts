import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { ownRoutes } from '../src/http/own-routes.js';
import { Environment } from '../src/index.js';

const page = readFileSync(new URL('../../../docs/gateway.md', import.meta.url), 'utf8');

function readDefault(schema: z.ZodType): string {
  if (!(schema instanceof z.ZodPrefault) || schema.def.defaultValue === '') return '';
  return `\`${schema.def.defaultValue}\``;
}

it('docs/gateway.md lists every variable of Environment', () => {
  const rows = Object.entries(Environment.shape).map(
    ([name, schema]) =>
      `| \`${name}\` | ${readDefault(schema)} | ${schema.description?.replaceAll('|', '\\|')} |`,
  );
  const listed = page.split('\n').filter((line) => /^\| `[A-Z0-9_]+` \|/.test(line));
  expect(listed).toEqual(rows);
});

it('docs/gateway.md names every path of ownRoutes', () => {
  for (const path of ownRoutes.keys()) {
    if (path !== '/') expect(page).toContain(`\`${path}\``);
  }
});
