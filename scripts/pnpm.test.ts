import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';

const read = (name: string) => readFileSync(`packages/cli/template/${name}`, 'utf8');

it('sibyl new decides for pnpm about the same scripts of dependencies as for npm', () => {
  const { allowBuilds } = parse(read('pnpm-workspace.yaml'));
  const [, scripts = ''] = /"allowScripts": (\{.*?\})/s.exec(read('package.json.template')) ?? [];
  expect(allowBuilds).toEqual(JSON.parse(scripts));
});
