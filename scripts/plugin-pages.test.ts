import { globSync, readFileSync } from 'node:fs';
import { createTestRuntime, type TestRuntime } from '@sibyl/plugin-kit/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { bundledPlugins } from '../packages/host/src/app/bundled-plugins.ts';
import { bundledVariables } from '../packages/host/test/support/bundled-variables.ts';

const config = Object.assign({}, ...Object.values(bundledVariables));
const pageOf = (name: string) => `docs/plugins/${name}.md`;

it('every bundled plugin has a page, and nothing else has', () => {
  const pages = bundledPlugins.map(({ name }) => pageOf(name));
  expect(globSync('docs/plugins/*.md').toSorted()).toEqual(pages.toSorted());
  const guide = readFileSync('docs/plugins.md', 'utf8');
  for (const { name } of bundledPlugins) expect(guide).toContain(`[${name}](plugins/${name}.md)`);
});

const named = bundledPlugins.map((plugin) => ({ plugin, page: pageOf(plugin.name) }));

describe.each(named)('$page', ({ plugin, page }) => {
  const text = readFileSync(page, 'utf8');
  const dependencies = bundledPlugins.filter(({ name }) => plugin.dependsOn?.includes(name));
  let runtime: TestRuntime;
  let alone: readonly string[];

  beforeAll(async () => {
    const others = await createTestRuntime({ plugins: dependencies, config });
    alone = (await others.routes()).map(routeName);
    await others.close();
    runtime = await createTestRuntime({ plugins: [...dependencies, plugin], config });
  });
  afterAll(() => runtime?.close());

  it('has a row for each of its variables, with its default', () => {
    const rows = [...text.matchAll(/^\| `([A-Z][A-Z0-9_]+)` \| (?:`([^`]*)`)? *\|/gm)];
    const told = rows.map(([, name, value = '']) => [name, value]);
    expect(told).toEqual(Object.entries(plugin.configSchema?.shape ?? {}).map(withDefault));
  });

  it('names its tools', () => {
    const tools = runtime.plugins.find(({ name }) => name === plugin.name)?.tools ?? [];
    expect(tools.filter(({ name }) => !text.includes(`\`${name}\``))).toEqual([]);
  });

  it('has a row for each of its routes', async () => {
    const rows = [...text.matchAll(/^\| `([A-Z]+ \/[^`?]*)/gm)].map(([, route]) => route);
    const routes = (await runtime.routes()).map(routeName);
    expect(rows.toSorted()).toEqual(routes.filter((route) => !alone.includes(route)).toSorted());
  });

  it('names the events it sends', () => {
    const events = eventsIn(`plugins/${plugin.name}/src`);
    expect(events.filter((event) => !text.includes(`\`${event}\``))).toEqual([]);
  });
});

const routeName = ({ method, path }: { method: string; path: string }) => `${method} ${path}`;

function withDefault([name, schema]: [string, unknown]): [string, string] {
  const value = schema instanceof z.ZodPrefault ? schema.def.defaultValue : '';
  return [name, String(value)];
}

const emitted: Readonly<Record<string, string>> = {
  toolCall: 'tool_call',
  actionCall: 'action_call',
  renderComponent: 'render_component',
  reasoning: 'reasoning',
  browserToolCall: 'browser_tool_call',
  router: 'router_update',
  messageCacheInvalidation: 'message_cache_invalidation',
};

/** What the code of a plugin tells or asks the user's page. */
function eventsIn(folder: string): string[] {
  const code = globSync(`${folder}/**/*.ts`).map((path) => readFileSync(path, 'utf8'));
  const found = [...code.join('\n').matchAll(/emit\.(\w+)\(|\bevent: '(\w+)'/g)];
  return [...new Set(found.map(([, method = '', event]) => event ?? emitted[method] ?? method))];
}
