import { globSync, readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { createTestRuntime } from '@sibyl/plugin-kit/testing';
import { describe, expect, it } from 'vitest';
import { bundledPlugins } from '../packages/host/src/app/bundled-plugins.ts';
import { bundledVariables } from '../packages/host/test/support/bundled-variables.ts';

const config = Object.assign({}, ...Object.values(bundledVariables));

describe.each(globSync('docs/plugins/*.md').toSorted())('%s', (path) => {
  const text = readFileSync(path, 'utf8');
  const plugin = bundledPlugins.find(({ name }) => name === basename(path, '.md'));
  const firstColumn = [...text.matchAll(/^\| `([^`]+)`/gm)].map(([, cell = '']) => cell);

  it('is about a plugin that comes with the host', () => {
    expect(plugin).toBeDefined();
  });

  it('has a row for each of its variables', () => {
    const variables = firstColumn.filter((cell) => /^[A-Z][A-Z0-9_]+$/.test(cell));
    expect(variables).toEqual(Object.keys(plugin?.configSchema?.shape ?? {}));
  });

  it('names its tools', async () => {
    const dependencies = bundledPlugins.filter(({ name }) => plugin?.dependsOn?.includes(name));
    const plugins = [...dependencies, ...(plugin ? [plugin] : [])];
    const runtime = await createTestRuntime({ plugins, config });
    const tools = runtime.plugins.find(({ name }) => name === plugin?.name)?.tools ?? [];
    await runtime.close();
    const unnamed = tools.filter(({ name }) => !text.includes(`\`${name}\``));
    expect(unnamed).toEqual([]);
  });
});
