import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineSubAgent, defineTool, type Tool } from '@sibyl/plugin-kit';
import type { Visibility } from '@sibyl/plugin-kit/host';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { ask, call, filterFrames, say } from './support/ask.js';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';

const CORE = ['list_capabilities', 'load_capability'];

const tool = (name: string, visibility?: Visibility): Tool =>
  defineTool({
    name,
    description: `Does ${name}`,
    inputSchema: z.object({}),
    ...(visibility && { visibility }),
    run: () => `did ${name}`,
  });

const plugin = (name: string, visibility: Visibility, tools: readonly Tool[]) =>
  testPlugin(name, {
    manifest: {
      title: `Title of ${name}`,
      summary: `What ${name} is for`,
      whenToUse: [`${name} is wanted`],
      whenNotToUse: [`${name} is not wanted`],
      examples: [`Please ${name}`],
      category: 'test',
      visibility,
    },
    getTools: () => tools,
  });

const plugins = [
  plugin('basics', 'always', [tool('greet'), tool('greet_loudly', 'on-demand')]),
  plugin('maps', 'on-demand', [tool('find_way'), tool('compass', 'always')]),
  plugin('charts', 'on-demand', [tool('draw'), tool('measure', 'silent')]),
  plugin('shadow', 'silent', [tool('whisper')]),
  testPlugin('experts', {
    manifest: { ...plugin('experts', 'on-demand', []).manifest },
    getSubAgents: () => [
      defineSubAgent({ name: 'expert', description: 'Knows it all', prompt: 'You know it all.' }),
    ],
  }),
];
const ALWAYS = ['greet', 'compass', 'measure', 'whisper'];

const test = useControlledHost({ bundled: [], plugins });

it('the model gets the tools of plugins that are always visible or silent, not those on demand', async () => {
  const { turns } = await ask(test, [say()]);
  expect(turns[0]?.tools).toEqual([...CORE, ...ALWAYS]);
});

it('the prompt describes only plugins that are always visible', async () => {
  const { turns } = await ask(test, [say()]);
  const system = turns[0]?.system ?? '';
  expect(system).toContain('- Title of basics: What basics is for');
  expect(system).toContain('Use it when: basics is wanted');
  expect(system).toContain('Do not use it when: basics is not wanted');
  expect(system).toContain('Tools: greet\n');
  for (const name of ['maps', 'charts', 'shadow', 'experts']) expect(system).not.toContain(name);
});

it('list_capabilities lists plugins that can be loaded, with their tools', async () => {
  const { turns } = await ask(test, [call(['list_capabilities']), say()]);
  const { capabilities } = JSON.parse(turns[1]?.results[0] ?? '');
  expect(capabilities).toEqual([
    expect.objectContaining({ name: 'basics', tools: ['greet_loudly'], isLoaded: false }),
    {
      name: 'maps',
      title: 'Title of maps',
      summary: 'What maps is for',
      whenToUse: ['maps is wanted'],
      whenNotToUse: ['maps is not wanted'],
      examples: ['Please maps'],
      category: 'test',
      stability: 'stable',
      isLoaded: false,
      tools: ['find_way'],
    },
    expect.objectContaining({ name: 'charts', tools: ['draw'] }),
    expect.objectContaining({ name: 'experts', tools: ['call_expert_agent'] }),
  ]);
});

describe('a plugin that load_capability loads', () => {
  it('can be used from the next model call on, several at once', async () => {
    const load = call(['load_capability', { names: ['maps', 'charts', 'nonsense'] }]);
    const { turns, frames } = await ask(test, [load, call(['find_way']), say()]);
    expect(JSON.parse(turns[1]?.results[0] ?? '')).toMatchObject({
      loaded: [
        { name: 'maps', tools: ['find_way'], whenToUse: ['maps is wanted'] },
        { name: 'charts', tools: ['draw'] },
      ],
      unknown: ['nonsense'],
    });
    expect(turns[1]?.tools).toEqual(expect.arrayContaining(['find_way', 'draw', ...ALWAYS]));
    expect(turns[1]?.tools).not.toContain('greet_loudly');
    expect(turns[2]?.results).toEqual(['"did find_way"']);
    expect(filterFrames({ frames }, 'tool_call').map(({ toolName }) => toolName)).toContain(
      'find_way',
    );
  });

  it('cannot be used earlier', async () => {
    const early = call(['load_capability', { names: ['maps'] }], ['find_way']);
    const { turns } = await ask(test, [early, call(['find_way']), say()]);
    expect(turns[1]?.results[1]).toContain('There is no tool named find_way');
    expect(turns[2]?.results).toEqual(['"did find_way"']);
  });

  it('stays loaded in this session only', async () => {
    const first = await ask(test, [call(['load_capability', { names: ['maps'] }]), say()]);
    const second = await ask(test, [say()], { sessionId: first.sessionId });
    expect(second.turns[0]?.tools).toContain('find_way');
    expect(second.turns[0]?.system).toContain('- Title of maps: What maps is for');
    const other = await ask(test, [say()]);
    expect(other.turns[0]?.tools).not.toContain('find_way');
  });

  it('stays loaded after a restart, if it still exists', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-host-'));
    onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
    const env = { ...test.model.env, DATA_DIR: dataDir };
    const host = await startHost({ bundled: [], plugins, env });
    const before = { model: test.model, host, alice: test.alice.at(host) };
    const load = call(['load_capability', { names: ['maps', 'charts'] }]);
    const { sessionId } = await ask(before, [load, say()]);
    await host.close();
    const left = plugins.filter(({ name }) => name !== 'charts');
    const again = await startHost({ bundled: [], plugins: left, env });
    onTestFinished(() => again.close());
    const after = { model: test.model, host: again, alice: test.alice.at(again) };
    const { turns } = await ask(after, [say()], { sessionId });
    expect(turns[0]?.tools).toContain('find_way');
    expect(turns[0]?.tools).not.toContain('draw');
  });
});

it('list_capabilities and load_capability are absent if no plugin is on demand', async () => {
  const host = await startHost({
    bundled: [],
    plugins: plugins.filter(({ name }) => name === 'shadow'),
    env: test.model.env,
  });
  onTestFinished(() => host.close());
  const alone = { model: test.model, host, alice: test.alice.at(host) };
  const { turns } = await ask(alone, [say()]);
  expect(turns[0]?.tools).toEqual(['whisper']);
  expect(turns[0]?.system).not.toContain('What you can do');
});
