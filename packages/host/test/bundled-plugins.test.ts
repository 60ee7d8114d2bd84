import { contractTests } from '@sibyl/plugin-kit/testing';
import { describe, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { bundledPlugins } from '../src/app/bundled-plugins.js';
import { bundledVariables } from './support/bundled-variables.js';
import { startHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const names = bundledPlugins.map(({ name }) => name);
const everything = Object.assign({}, ...Object.values(bundledVariables));

describe.each(bundledPlugins.map((plugin) => ({ plugin, name: plugin.name })))(
  'the bundled plugin $name',
  ({ plugin }) => {
    const dependencies = bundledPlugins.filter((other) => plugin.dependsOn?.includes(other.name));
    const tests = contractTests(plugin, { config: everything, dependencies });

    it.each(tests)('$name', ({ run }) => run());
  },
);

/** One by one, or some together, so that each is off once. */
const COUNT = scale(names.length, 4);
const groups = Array.from({ length: COUNT }, (_, group) =>
  names.filter((_, i) => i % COUNT === group),
);

it.each(groups.map((group) => [group.join()]))(
  'the bundled plugins %s can be switched off, and the host answers without them',
  async (list) => {
    const group = list.split(',');
    const off = new Set(group.flatMap((name) => [...findDependents(name)]));
    const FEATURES = group.map((name) => `${name}=false`).join();
    const host = await startHost({ env: { ...everything, FEATURES } });
    const loaded = host.app.plugins.status().filter(({ isLoaded }) => isLoaded);
    expect(loaded.map((status) => status.name)).toEqual(names.filter((one) => !off.has(one)));
    await answers(host);
    await host.close();
  },
);

it('GET /plugins suggests only what the offline model answers while it is the model', async () => {
  const host = await startHost({ env: everything });
  const user = new TestUser(host);
  const { plugins } = (await user.request('GET', '/plugins')).body;
  const examples: string[] = plugins.flatMap((plugin: { examples: string[] }) => plugin.examples);
  expect(examples).toContain('Call me Sam.');
  expect(examples).not.toContain('Remind me in two hours.');
  for (const message of examples) {
    const sessionId = await openSession(user);
    const { body } = await user.request('POST', `/messages/${sessionId}`, { body: { message } });
    expect(body.message.content, message).not.toMatch(/offline model|did not work|[{}]/);
  }
  await host.close();
});

it('all bundled plugins work together, and the host without any', async () => {
  for (const [bundled, loaded] of [
    [bundledPlugins, names],
    [[], []],
  ] as const) {
    const host = await startHost({ bundled, env: everything });
    const status = host.app.plugins.status().filter(({ isLoaded }) => isLoaded);
    expect(status.map(({ name }) => name)).toEqual(loaded);
    await answers(host);
    await host.close();
  }
});

/** A plugin and all that cannot do without it. */
function findDependents(name: string): Set<string> {
  const off = new Set([name]);
  for (const { name: other, dependsOn = [] } of bundledPlugins)
    if (dependsOn.some((needed) => off.has(needed))) off.add(other);
  return off;
}

/** A message is answered, whole and as a stream. */
async function answers(host: { readonly url: string; readonly did: string }): Promise<void> {
  const alice = new TestUser(host);
  const sessionId = await openSession(alice);
  const { status, body } = await alice.request('POST', `/messages/${sessionId}`, {
    body: { message: 'count to 3' },
  });
  expect([status, body.message?.content]).toEqual([200, '1 2 3']);
  const live = await stream(alice, sessionId, { message: 'count to 4' });
  const frames = await live.toEnd();
  expect(live.text).toBe('1 2 3 4');
  expect(frames.at(-1)?.data.status).toBe('finished');
  const history = await alice.request('GET', `/messages/${sessionId}`);
  expect(history.body.messages).toHaveLength(4);
}
