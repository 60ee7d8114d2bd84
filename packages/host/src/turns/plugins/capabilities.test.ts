import {
  type LoadedPlugin,
  PluginManifest,
  type SessionState,
  type Visibility,
} from '@sibyl/plugin-kit/host';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { MemoryJournal } from '../../../test/support/agent/memory-journal.js';
import { testPlugin } from '../../../test/support/plugin.js';
import { CallInterrupts } from '../../agent/call-interrupts.js';
import { toAgentTool } from '../../agent/tool-schema.js';
import { Capabilities, RESERVED_TOOLS, type TurnTool } from './capabilities.js';
import type { MiddlewareChain } from './middlewares.js';

const CORE = ['list_capabilities', 'load_capability'];

function loadPlugin(name: string, visibility: Visibility): LoadedPlugin {
  const plugin = testPlugin(name, {});
  const whenNotToUse = [`${name} is not wanted`];
  const manifest = PluginManifest.parse({ ...plugin.manifest, visibility, whenNotToUse });
  return { plugin, name, manifest } as LoadedPlugin;
}

function createTool(plugin: LoadedPlugin, name: string, visibility: Visibility): TurnTool {
  const inputSchema = z.object({});
  const bound = toAgentTool({ name, description: name, inputSchema, run: async () => name });
  if (!bound.ok) throw new Error(bound.error);
  return { plugin, visibility, ...bound.ok };
}

const basics = loadPlugin('basics', 'always');
const maps = loadPlugin('maps', 'on-demand');
const charts = loadPlugin('charts', 'on-demand');
const shadow = loadPlugin('shadow', 'silent');
const TOOLS = [
  createTool(basics, 'greet', 'always'),
  createTool(basics, 'shout', 'on-demand'),
  createTool(maps, 'find_way', 'on-demand'),
  createTool(maps, 'compass', 'always'),
  createTool(charts, 'draw', 'on-demand'),
  createTool(shadow, 'whisper', 'silent'),
];

/** The state of a session in memory, and how often it was read and written. */
function createState(stored?: unknown) {
  const state = { stored, reads: 0, writes: 0, isAway: false };
  const sessionState: SessionState = {
    get: async (key) => {
      state.reads += 1;
      return key === 'capabilities' ? state.stored : undefined;
    },
    set: async (key, value) => {
      if (state.isAway) throw new Error('away');
      state.writes += 1;
      if (key === 'capabilities') state.stored = value;
    },
  };
  return { state, sessionState };
}

async function open(stored?: unknown, tools: readonly TurnTool[] = TOOLS) {
  const { state, sessionState } = createState(stored);
  const wrapped: string[] = [];
  const chain = {
    aroundTool: (agent, tool) => {
      wrapped.push(`${agent}: ${tool.name}`);
      return tool;
    },
  } as Pick<MiddlewareChain, 'aroundTool'> as MiddlewareChain;
  const plugins = [basics, maps, charts, shadow];
  const capabilities = await Capabilities.open({ plugins, tools, state: sessionState, chain });
  const names = () => capabilities.tools.map(({ name }) => name);
  const run = async (name: string, input = {}) => {
    const deps = { journal: new MemoryJournal(), path: '', callId: 'c1', asked: [] };
    const call = new CallInterrupts(deps).createCall('c1', new AbortController().signal);
    const tool = capabilities.tools.find((each) => each.name === name);
    return tool?.run(input, call);
  };
  const load = (...wanted: readonly string[]) => run('load_capability', { names: wanted });
  return { capabilities, names, run, load, state, wrapped };
}

describe('Capabilities', () => {
  it('offers tools that are not on demand, and those that find more, through middlewares', async () => {
    const { names, wrapped, capabilities } = await open();
    expect(names()).toEqual([...CORE, 'greet', 'compass', 'whisper']);
    expect(wrapped).toEqual(CORE.map((name) => `main: ${name}`));
    expect([...RESERVED_TOOLS]).toEqual(CORE);
    expect(capabilities.tools).toBe(capabilities.tools);
  });

  it('offers neither, and reads nothing, if no tool is on demand', async () => {
    const { names, state } = await open(['maps'], [createTool(basics, 'greet', 'always')]);
    expect(names()).toEqual(['greet']);
    expect(state.reads).toBe(0);
  });

  it('load_capability adds the tools of plugins, and stores that for the session', async () => {
    const { names, load, state } = await open();
    expect(await load('charts', 'maps')).toEqual({
      loaded: [
        {
          name: 'maps',
          tools: ['find_way'],
          whenToUse: ['always'],
          whenNotToUse: ['maps is not wanted'],
        },
        expect.objectContaining({ name: 'charts', tools: ['draw'] }),
      ],
    });
    expect(names()).toEqual([...CORE, 'greet', 'find_way', 'compass', 'draw', 'whisper']);
    expect(state.stored).toEqual(['maps', 'charts']);
  });

  it('load_capability names what is unknown, and loads the rest', async () => {
    const { names, load, state } = await open();
    expect(await load('maps', 'nonsense', 'shadow')).toMatchObject({
      loaded: [{ name: 'maps' }],
      unknown: ['nonsense', 'shadow'],
      hint: expect.stringContaining('list_capabilities'),
    });
    expect(names()).toContain('find_way');
    expect(state.stored).toEqual(['maps']);
  });

  it('load_capability writes only what is new, beside what was loaded', async () => {
    const { load, state } = await open(['charts']);
    expect(await load('charts')).toMatchObject({ loaded: [{ name: 'charts' }] });
    expect(state.writes).toBe(0);
    await load('maps');
    expect([state.stored, state.writes]).toEqual([['charts', 'maps'], 1]);
  });

  it('load_capability adds nothing if it cannot be stored', async () => {
    const { names, load, state } = await open();
    state.isAway = true;
    await expect(load('maps')).rejects.toThrow('away');
    expect(names()).not.toContain('find_way');
  });

  it.each([
    ['no name', []],
    ['an empty name', ['']],
    ['a name that is too long', ['x'.repeat(101)]],
    ['too many names', Array.from({ length: 21 }, (_, i) => `n${i}`)],
  ])('load_capability refuses %s', async (_, wanted) => {
    const { load, capabilities } = await open();
    await expect(load(...wanted)).rejects.toThrow();
    const tool = capabilities.tools.find(({ name }) => name === 'load_capability');
    expect(await tool?.check({ names: wanted })).toHaveProperty('error');
  });

  it('load_capability accepts as many and as long names as it allows', async () => {
    const { load } = await open();
    const names = Array.from({ length: 20 }, (_, i) => String(i).padStart(100, 'x'));
    expect(await load(...names)).toMatchObject({ loaded: [], unknown: names });
  });

  it('the model learns where the names of capabilities are, and what loading them adds', async () => {
    const { capabilities } = await open();
    const [list, load] = capabilities.tools;
    expect(list?.description).toContain('the tools of each capability');
    expect(load?.description).toMatch(/list_capabilities.*tools/);
    expect(load?.inputSchema).toMatchObject({
      properties: { names: { description: expect.stringContaining('list_capabilities') } },
    });
    expect(await list?.check({})).toEqual({ ok: {} });
  });

  it('load_capability loads a capability once that is named twice', async () => {
    const { load, state } = await open();
    expect(await load('maps', 'maps', 'gone', 'gone')).toMatchObject({
      loaded: [{ name: 'maps' }],
      unknown: ['gone'],
    });
    expect(state.stored).toEqual(['maps']);
  });

  it('a capability that cannot be loaded is not described, although it is stored as loaded', async () => {
    const { capabilities, names } = await open(['gone']);
    expect(capabilities.described.map(({ manifest }) => manifest.title)).toEqual(['basics']);
    expect(names()).toEqual([...CORE, 'greet', 'compass', 'whisper']);
  });

  it('list_capabilities lists the plugins with tools on demand, and which are loaded', async () => {
    const { run } = await open(['maps']);
    const { capabilities } = z
      .object({ capabilities: z.array(z.looseObject({ name: z.string() })) })
      .parse(await run('list_capabilities'));
    expect(capabilities).toMatchObject([
      { name: 'basics', isLoaded: false, tools: ['shout'] },
      { name: 'maps', isLoaded: true, tools: ['find_way'], title: 'maps' },
      { name: 'charts', isLoaded: false, tools: ['draw'] },
    ]);
    for (const capability of capabilities) expect(capability).not.toHaveProperty('visibility');
  });

  it('describes plugins that are always visible or loaded, with the tools that can be used', async () => {
    const { capabilities, load } = await open();
    const described = () => capabilities.described.map(({ manifest, tools }) => [manifest, tools]);
    expect(described()).toEqual([[basics.manifest, ['greet']]]);
    await load('maps', 'basics');
    expect(described()).toEqual([
      [basics.manifest, ['greet', 'shout']],
      [maps.manifest, ['find_way', 'compass']],
    ]);
  });

  it('keeps what was loaded earlier, also plugins that are missing now', async () => {
    const { names, load, state } = await open(['maps', 'gone']);
    expect(names()).toContain('find_way');
    await load('charts');
    expect(state.stored).toEqual(['maps', 'gone', 'charts']);
  });

  it.each([undefined, null, 'maps', [1], { maps: true }])('ignores a stored %j', async (stored) => {
    const { names, load, state } = await open(stored);
    expect(names()).toEqual([...CORE, 'greet', 'compass', 'whisper']);
    await load('maps');
    expect(state.stored).toEqual(['maps']);
  });
});
