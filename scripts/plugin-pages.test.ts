import { globSync, readFileSync } from 'node:fs';
import { createTestRuntime, type TestRuntime } from '@sibyl/plugin-kit/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { bundledPlugins } from '../packages/host/src/app/bundled-plugins.ts';
import { bundledVariables } from '../packages/host/test/support/bundled-variables.ts';

const config = Object.assign({}, ...Object.values(bundledVariables));
const getPage = (name: string) => `docs/plugins/${name}.md`;

it('docs/plugins has one page per bundled plugin', () => {
  const pages = bundledPlugins.map(({ name }) => getPage(name));
  expect(globSync('docs/plugins/*.md').toSorted()).toEqual(pages.toSorted());
  const guide = readFileSync('docs/plugins.md', 'utf8');
  for (const { name } of bundledPlugins) expect(guide).toContain(`[${name}](plugins/${name}.md)`);
});

const named = bundledPlugins.map((plugin) => ({ plugin, page: getPage(plugin.name) }));

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

  it('has a row for each variable, with its default', () => {
    const rows = [...text.matchAll(/^\| `([A-Z][A-Z0-9_]+)` \| (?:`([^`]*)`)? *\|/gm)];
    const documented = rows.map(([, name, value = '']) => [name, value]);
    expect(documented).toEqual(Object.entries(plugin.configSchema?.shape ?? {}).map(withDefault));
  });

  it('names its tools', () => {
    const tools = runtime.plugins.find(({ name }) => name === plugin.name)?.tools ?? [];
    expect(tools.filter(({ name }) => !text.includes(`\`${name}\``))).toEqual([]);
  });

  it('has a row for each route', async () => {
    const rows = [...text.matchAll(/^\| `([A-Z]+ \/[^`?]*)/gm)].map(([, route]) => route);
    const routes = (await runtime.routes()).map(routeName);
    expect(rows.toSorted()).toEqual(routes.filter((route) => !alone.includes(route)).toSorted());
  });

  it('names the events it sends', () => {
    const events = findEvents(`plugins/${plugin.name}/src`);
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

/** The events that a plugin sends to the user's page. */
function findEvents(folder: string): string[] {
  const code = globSync(`${folder}/**/*.ts`).map((path) => readFileSync(path, 'utf8'));
  const found = [...code.join('\n').matchAll(/emit\.(\w+)\(|\bevent: '(\w+)'/g)];
  return [...new Set(found.map(([, method = '', event]) => event ?? emitted[method] ?? method))];
}
