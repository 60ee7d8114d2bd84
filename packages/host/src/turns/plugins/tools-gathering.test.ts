import type { OraclePlugin, SubAgent, Tool } from '@sibyl/plugin-kit';
import {
  type LoadedPlugin,
  PluginManifest,
  type TurnUcan,
  createTurnEmit as toEmit,
  type Visibility,
} from '@sibyl/plugin-kit/host';
import { OracleError, type ReplyPart, type Rule } from '@sibyl/protocol';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { requestTo } from '../../../test/support/agent/agent-requests.js';
import { RecordingMeter } from '../../../test/support/agent/recording-meter.js';
import {
  callTools,
  ScriptedModel,
  type ScriptedStep,
  say,
} from '../../../test/support/agent/scripted-model.js';
import { testPlugin } from '../../../test/support/plugin.js';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import type { AgentCall } from '../../agent/agent.js';
import { LiveRules } from '../../auth/user-rules.js';
import { Hooks } from './hooks.js';
import { MiddlewareChain } from './middlewares.js';
import { ToolPolicy, TurnReach } from './tool-policy.js';
import { gatherTools, type ToolTurn } from './tools.js';
import { TurnContexts } from './turn-context.js';

const test = useStore('sqlite');
afterEach(() => {
  vi.restoreAllMocks();
});

type Hooked = Pick<OraclePlugin, 'getRequestTools' | 'getRequestSubAgents'>;

interface Contribution extends Partial<Hooked> {
  readonly name?: string;
  readonly visibility?: Visibility;
  readonly tools?: readonly Tool[];
  readonly subAgents?: readonly SubAgent[];
}

function loadPlugin(contribution: Contribution): LoadedPlugin {
  const { name = 'shop', visibility = 'always', tools = [], subAgents = [] } = contribution;
  const { getRequestTools, getRequestSubAgents } = contribution;
  const hooks = {
    ...(getRequestTools && { getRequestTools }),
    ...(getRequestSubAgents && { getRequestSubAgents }),
  };
  const plugin = testPlugin(name, hooks);
  return {
    ...{ plugin, name, tools, subAgents, config: {}, services: undefined, shared: {} },
    manifest: PluginManifest.parse({ ...plugin.manifest, title: `The ${name}`, visibility }),
    ...{ middlewares: [], gate: undefined, nestModules: [], openRoutes: [], routes: [] },
  };
}

interface GatherOptions {
  readonly surface?: ToolTurn['surface'];
  readonly rules?: readonly Rule[];
  readonly signal?: AbortSignal;
  /** What the model of sub-agents says. */
  readonly subScript?: readonly ScriptedStep[];
}

/** The tools of a turn with these plugins, and what it reported. */
async function gather(contributions: readonly Contribution[], options: GatherOptions = {}) {
  const { signal = new AbortController().signal, subScript = [], surface } = options;
  const plugins = contributions.map(loadPlugin);
  const warnings: string[] = [];
  const warn = (code: string, message: string) => void warnings.push(`${code}: ${message}`);
  const log: Record<string, unknown>[] = [];
  const logger = pino({ base: null }, { write: (line) => void log.push(JSON.parse(line)) });
  const hooks = new Hooks(logger, 1000);
  const emitted: ReplyPart[] = [];
  const emit = toEmit({ sessionId: 's1', requestId: 'r1' }, (part) => void emitted.push(part));
  const contexts = await openContexts(plugins, { emit, warn, hooks, signal });
  const reach = new TurnReach({});
  const chain = new MiddlewareChain({ contexts, hooks, reach, signal });
  const subModel = new ScriptedModel(...subScript);
  const models = { get: vi.fn(() => subModel) };
  const meter = new RecordingMeter();
  const onToolEnd = vi.fn();
  const policy = await createPolicy(hooks, options.rules ?? []);
  const { smallModel, limits } = requestTo(subModel);
  const shared = { smallModel, limits, meter, onToolEnd, models, chain, hooks, reach };
  const found = await gatherTools({
    ...{ ...shared, plugins, contexts, policy, warn, surface, signal },
  });
  const find = (name: string) => {
    const tool = found.find((each) => each.tool.name === name)?.tool;
    if (!tool) throw new Error(`no tool ${name}`);
    return tool;
  };
  const names = found.map(({ tool }) => tool.name);
  const { degraded } = contexts;
  const seen = { warnings, log, emitted, degraded, models, subModel, meter, onToolEnd };
  return { found, names, find, ...seen };
}

const ucan: TurnUcan = {
  hasSigningKey: () => true,
  hasCapability: async () => true,
  requireCapability: async () => undefined,
  mintInvocation: async () => 'signed',
  resolveServiceDid: async () => 'did:web:service',
};

function openContexts(
  plugins: readonly LoadedPlugin[],
  deps: Pick<Parameters<typeof TurnContexts.open>[0], 'emit' | 'warn' | 'hooks' | 'signal'>,
): Promise<TurnContexts> {
  const owner = newOwner();
  const key = { owner, sessionId: 's1' };
  const session = { id: 's1', requestId: 'r1', roomId: '', client: 'api' };
  const user = { did: owner, timezone: 'Africa/Nairobi', currentTime: '2026-01-01T00:00:00Z' };
  const request = {
    caller: { did: owner, expiration: 10, presentedDelegation: undefined },
    message: { message: 'Hi', multitask: 'enqueue' },
    ...{ sessionId: 's1', requestId: 'r1', user: {}, client: 'api' },
  } as const;
  return TurnContexts.open(
    {
      ...deps,
      request,
      facts: { user, session, history: [], request: { attachments: [], mcpInvocations: {} } },
      store: test.store,
      sessionState: test.store.sessionState.ofTurn(key),
      createUcan: () => ucan,
      llm: { get: () => ({ generate: () => Promise.reject(new Error('no model')) }) },
      client: { call: async () => undefined },
      reach: new TurnReach({}),
      loggerFor: () => pino({ level: 'silent' }),
    },
    plugins,
  );
}

async function createPolicy(hooks: Hooks, stored: readonly Rule[]): Promise<ToolPolicy> {
  const rules = new LiveRules({
    load: async () => ({ rules: stored, cid: 'bafy', expiresAt: null, storedAt: 1 }),
    watch: () => () => {},
    logger: pino({ level: 'silent' }),
  });
  await rules.reload();
  return new ToolPolicy({ operator: [], rules, hooks, createUcan: () => ucan, onRan: () => {} });
}

const simple = (name: string, changes: Partial<Tool> = {}): Tool => ({
  ...{ name, description: `The tool ${name}`, inputSchema: z.object({}), run: () => name },
  ...changes,
});

/** A call of a tool as the agent makes it. */
function createCall(changes: Partial<AgentCall> = {}): AgentCall {
  return {
    ...{ id: 'c1', signal: new AbortController().signal, nested: {}, decision: undefined },
    interrupt: () => undefined,
    pause: () => {
      throw new Error('waits');
    },
    throwIfPaused: () => {},
    ...changes,
  };
}

describe('gatherTools', () => {
  it('lists the tools of every turn before those of this one, each in the order of the plugins', async () => {
    const agent = (name: string) => ({ name, description: 'Helps', prompt: 'Help.' });
    const { names, warnings } = await gather([
      { name: 'a', tools: [simple('a1')], getRequestTools: () => [simple('a2')] },
      {
        ...{ name: 'b', tools: [simple('b1')], subAgents: [agent('clerk')] },
        getRequestSubAgents: async () => [agent('guide')],
      },
    ]);
    expect(names).toEqual(['a1', 'b1', 'call_clerk_agent', 'a2', 'call_guide_agent']);
    expect(warnings).toEqual([]);
  });

  it('uses the first of two tools with one name, and reports the other', async () => {
    const first = simple('twin', { run: () => 'first' });
    const second = simple('twin', { run: () => 'second' });
    const { names, find, warnings, log } = await gather([
      { name: 'a', getRequestTools: () => [second] },
      { name: 'b', tools: [first] },
    ]);
    expect(names).toEqual(['twin']);
    expect(await find('twin').run({}, createCall())).toBe('first');
    const text = 'The tool twin of a is left out: b has a tool of that name.';
    expect(warnings).toEqual([`tool_left_out: ${text}`]);
    const err = { message: 'left out twin: b has a tool of that name' };
    expect(log).toMatchObject([{ plugin: 'a', hook: 'getRequestTools', err }]);
  });

  it('does not let a plugin replace a tool of the host', async () => {
    const { names, warnings } = await gather([{ tools: [simple('load_capability')] }]);
    expect(names).toEqual([]);
    const text = 'The tool load_capability of shop is left out: the host has a tool of that name.';
    expect(warnings).toEqual([`tool_left_out: ${text}`]);
  });

  it('uses the visibility of the plugin, unless a tool has its own', async () => {
    const agent = { name: 'clerk', description: 'Helps', prompt: 'Help.' };
    const { found } = await gather([
      {
        name: 'a',
        visibility: 'on-demand',
        tools: [simple('a1'), simple('a2', { visibility: 'always' })],
        subAgents: [agent, { ...agent, name: 'guide', visibility: 'always' }],
      },
    ]);
    const seen = found.map(({ visibility }) => visibility);
    expect(seen).toEqual(['on-demand', 'always', 'on-demand', 'always']);
  });

  it('leaves out what the user blocks, without a warning, also of sub-agents', async () => {
    const clerk = { name: 'clerk', description: 'Helps', prompt: 'Help.' };
    const subAgents = [{ ...clerk, tools: [simple('buy'), simple('look')] }];
    const rules = [{ match: 'tool:buy', effect: 'block' }] as const;
    const { names, find, warnings, subModel } = await gather(
      [{ tools: [simple('buy'), simple('sell')], subAgents }],
      { rules, subScript: [say('Done.')] },
    );
    expect([names, warnings]).toEqual([['sell', 'call_clerk_agent'], []]);
    await find('call_clerk_agent').run({ task: 'Look' }, createCall());
    expect(subModel.calls[0]?.tools.map(({ name }) => name)).toEqual(['look']);
  });

  it('leaves out a tool whose schema no model accepts, and says why', async () => {
    const odd = simple('odd', { inputSchema: { type: 'array' } });
    const { names, warnings } = await gather([{ tools: [odd, simple('sound')] }]);
    expect(names).toEqual(['sound']);
    expect(warnings).toEqual([
      'tool_left_out: The tool odd cannot be used: its schema cannot be used: it must describe an object',
    ]);
  });
});

describe('the schemas of a turn', () => {
  const LIMIT = 1024 * 1024;
  /** A tool whose schema has about as many characters. */
  const large = (name: string, characters: number) =>
    simple(name, { inputSchema: { type: 'object', description: 'x'.repeat(characters) } });

  it('have a common limit: a tool that does not fit is left out, a smaller one after it is not', async () => {
    const first = Array.from({ length: 8 }, (_, i) => large(`t${i}`, 130_000));
    const { found } = await gather([{ tools: [...first, simple('tiny')] }]);
    const used = found.reduce((sum, { characters }) => sum + characters, 0);
    const overhead = (found[0]?.characters ?? 0) - 130_000;
    // Fills the limit to its last character.
    const room = LIMIT - used - overhead;
    const exact = await gather([{ tools: [...first, simple('tiny'), large('last', room)] }]);
    expect([exact.names.at(-1), exact.warnings]).toEqual(['last', []]);
    const last = [large('last', room + 1), simple('later')];
    const over = await gather([{ tools: [...first, simple('tiny'), ...last] }]);
    expect(over.names.slice(8)).toEqual(['tiny', 'later']);
    expect(over.warnings).toEqual([
      `tool_left_out: The tool last is left out: the schemas of a turn may hold at most ${LIMIT} characters.`,
    ]);
  });

  /** Two tools; returns whether others could run between the reading of their schemas. */
  async function letsOthersRun(msPerTool: number, signal?: AbortSignal) {
    let now = 1000;
    vi.spyOn(performance, 'now').mockImplementation(() => now);
    let hasRun = false;
    let hadRun: boolean | undefined;
    const slow = {
      ...simple('slow'),
      get inputSchema() {
        setImmediate(() => (hasRun = true));
        now += msPerTool;
        return z.object({});
      },
    };
    const late = {
      ...simple('late'),
      get inputSchema() {
        hadRun = hasRun;
        return z.object({});
      },
    };
    await gather([{ tools: [slow, late] }], signal && { signal });
    return hadRun;
  }

  it('do not keep others waiting while they are read', async () => {
    expect(await letsOthersRun(4)).toBe(false);
    expect(await letsOthersRun(5)).toBe(true);
  });

  it('are not read further once the turn is aborted', async () => {
    const turn = new AbortController();
    const reason = new OracleError('host_stopping');
    setImmediate(() => turn.abort(reason));
    await expect(letsOthersRun(5, turn.signal)).rejects.toBe(reason);
  });
});

describe('a hook that contributes tools to a turn', () => {
  const fail = () => {
    throw new Error('broken');
  };
  it.each<[string, () => unknown]>([
    ['throws', fail],
    ['rejects', async () => fail()],
    ['returns no array', () => ({ length: 1 })],
    ['resolves to no array', async () => undefined],
  ])('and %s costs its plugin only what it contributes', async (_, hook) => {
    for (const name of ['getRequestTools', 'getRequestSubAgents'] as const) {
      const { names, warnings, degraded, log } = await gather([
        { tools: [simple('sound')], [name]: hook },
      ]);
      expect(names).toEqual(['sound']);
      expect(warnings).toEqual(['plugin_failed: The shop is not fully available in this turn.']);
      expect(degraded).toEqual([
        { name: 'The shop', missing: 'it failed to set up; some of its tools are missing' },
      ]);
      expect(log).toMatchObject([{ plugin: 'shop', hook: name }]);
    }
  });

  it('loses the items that are unusable, each with its reason', async () => {
    const long = 'n'.repeat(200);
    const items: unknown[] = [null, {}, { name: '' }, simple(long), simple('sound')];
    const { names, warnings, log, degraded } = await gather([
      { getRequestTools: () => items as Tool[] },
    ]);
    expect([names, degraded]).toEqual([['sound'], []]);
    const rule = 'its name must consist of letters, digits, _ and -, at most 64';
    const faults = [
      'A tool cannot be used: not a tool',
      `A tool cannot be used: ${rule}`,
      `A tool cannot be used: ${rule}`,
      `The tool ${'n'.repeat(100)} cannot be used: ${rule}`,
    ];
    expect(warnings).toEqual(faults.map((fault) => `tool_left_out: ${fault}`));
    expect(log.map(({ err }) => err)).toMatchObject(faults.map((message) => ({ message })));
    expect(log[0]).toMatchObject({ plugin: 'shop', hook: 'getRequestTools' });
  });

  it('checks sub-agents as such', async () => {
    const nameless: unknown[] = [{ ...simple('x'), prompt: undefined }];
    const { warnings } = await gather([{ getRequestSubAgents: () => nameless as SubAgent[] }]);
    expect(warnings).toEqual(['tool_left_out: The tool x cannot be used: it has no prompt']);
  });

  it('receives the context of its plugin, whose signal ends with the turn', async () => {
    const turn = new AbortController();
    let signal: AbortSignal | undefined;
    const getRequestTools: Hooked['getRequestTools'] = ({ user, signal: given }) => {
      signal = given;
      return [simple(user.timezone.replace('/', '_'))];
    };
    const { names } = await gather([{ getRequestTools }], { signal: turn.signal });
    expect(names).toEqual(['Africa_Nairobi']);
    turn.abort();
    expect(signal?.aborted).toBe(true);
  });
});

describe('a tool of the client', () => {
  const schema = { type: 'object', properties: { color: { type: 'string' } } };
  const surface = {
    plugin: 'page',
    clientTools: [
      { name: 'paint', description: 'Paints', schema },
      { name: 'undo', description: '', schema },
    ],
  };

  it('belongs to the plugin that serves the client, and is always visible', async () => {
    const shop = { name: 'shop', getRequestTools: () => [] };
    const plugins = [shop, { name: 'page', visibility: 'on-demand' }] as const;
    const { found, warnings } = await gather(plugins, { surface });
    expect(found).toMatchObject([
      { plugin: { name: 'page' }, visibility: 'always', tool: { description: 'Paints' } },
      { plugin: { name: 'page' }, visibility: 'always', tool: { name: 'undo' } },
    ]);
    expect(found.map(({ tool }) => tool.description)).toEqual(['Paints', 'undo']);
    expect(found[0]?.tool.inputSchema).toMatchObject(schema);
    expect(warnings).toEqual([]);
  });

  it('is run by the client: the call asks for its result', async () => {
    const { find } = await gather([{ name: 'page' }], { surface });
    const interrupt = vi.fn(() => 'painted');
    const args = { color: 'red' };
    const call = createCall({ id: 'c7', interrupt });
    expect(await find('paint').run(args, call)).toBe('painted');
    const data = { toolCallId: 'c7', toolName: 'paint', args };
    const asked = expect.objectContaining({ kind: 'tool_call', schema: {}, data });
    expect(interrupt).toHaveBeenCalledExactlyOnceWith(asked);
  });

  it('does not exist without such a plugin', async () => {
    expect((await gather([{ name: 'shop' }], { surface })).names).toEqual([]);
    expect((await gather([{ name: 'page' }], { surface: { plugin: 'page' } })).names).toEqual([]);
  });
});

describe('a tool of a plugin', () => {
  it('keeps its limits and its event', async () => {
    const { find } = await gather([
      { tools: [simple('act', { timeoutMs: 5, event: 'action_call' }), simple('look')] },
    ]);
    expect(find('act')).toMatchObject({
      ...{ name: 'act', description: 'The tool act', timeoutMs: 5, event: 'action_call' },
    });
    expect(find('look')).toMatchObject({ timeoutMs: 60_000, event: undefined });
  });

  it('runs with the context of its call', async () => {
    let given: AbortSignal | undefined;
    const run: Tool['run'] = async (
      input,
      { toolCallId, signal, user, ucan: rights, interrupt },
    ) => {
      given = signal;
      await rights.requireCapability({ can: 'x/y', with: 'z' });
      const answer = await interrupt({ kind: 'confirmation', schema: {} });
      return { input, toolCallId, timezone: user.timezone, answer };
    };
    const tools = [simple('act', { run })];
    const turn = new AbortController();
    const call = createCall({ id: 'c3', signal: turn.signal, interrupt: () => 'yes' });
    const { find } = await gather([{ tools }]);
    const context = { input: { a: 1 }, toolCallId: 'c3', timezone: 'Africa/Nairobi' };
    expect(await find('act').run({ a: 1 }, call)).toEqual({ ...context, answer: 'yes' });
    const rules = [{ match: 'can:x/*', effect: 'block' }] as const;
    const restricted = await gather([{ tools }], { rules });
    await expect(restricted.find('act').run({}, call)).rejects.toThrow('block x/y');
    turn.abort();
    expect(given?.aborted).toBe(true);
  });

  it.each([
    [undefined, 'tool_call', { eventId: 'c1' }],
    ['action_call', 'action_call', { toolCallId: 'c1' }],
  ] as const)('with the event %s shows its progress as %s', async (event, frame, ids) => {
    async function* run() {
      yield 'half';
      return 'done';
    }
    const { find, emitted } = await gather([
      { tools: [simple('act', { run, ...(event && { event }) })] },
    ]);
    expect(await find('act').run({ a: 1 }, createCall())).toBe('done');
    const place = { sessionId: 's1', requestId: 'r1' };
    const shown = { toolName: 'act', args: { a: 1 }, status: 'isRunning', output: 'half' };
    expect(emitted).toEqual([{ event: frame, data: { ...place, ...shown, ...ids } }]);
  });

  it('is not run before it is approved, if it needs that', async () => {
    const run = vi.fn(() => 'paid');
    const { find } = await gather([{ tools: [simple('pay', { run, needsApproval: true })] }]);
    const interrupt = vi.fn(() => {
      throw new Error('asked');
    });
    await expect(find('pay').run({}, createCall({ interrupt }))).rejects.toThrow('asked');
    expect(run).not.toHaveBeenCalled();
  });
});

describe('the tool that calls a sub-agent', () => {
  const clerk: SubAgent = { name: 'clerk', description: 'Buys things', prompt: 'You buy.' };
  const NAME = 'call_clerk_agent';

  it('takes a task of limited length, and has time for many steps', async () => {
    const { find } = await gather([{ subAgents: [clerk] }]);
    const tool = find(NAME);
    expect(tool).toMatchObject({ description: 'Buys things', isAgent: true, timeoutMs: 600_000 });
    expect(tool.inputSchema).toMatchObject({
      properties: { task: { description: expect.stringContaining('not see the conversation') } },
      required: ['task'],
    });
    const accepts = async (task: string) => 'ok' in (await tool.check({ task }));
    const tasks = ['', 'x', 'x'.repeat(20_000), 'x'.repeat(20_001)];
    expect(await Promise.all(tasks.map(accepts))).toEqual([false, true, true, false]);
  });

  it('gives it the task alone, with the time of the user, and shows when it begins and ends', async () => {
    const { find, subModel, emitted, models, meter } = await gather([{ subAgents: [clerk] }], {
      subScript: [say('  Bought. ')],
    });
    expect(await find(NAME).run({ task: 'Buy tea' }, createCall())).toBe('Bought.');
    expect(subModel.calls[0]?.system).toMatch(/^You buy\./);
    expect(subModel.lastMessages).toEqual([
      { role: 'user', content: 'Buy tea', note: expect.stringContaining('Africa/Nairobi') },
    ]);
    expect(models.get).toHaveBeenCalledExactlyOnceWith('subagent');
    expect(meter.uses).toHaveLength(1);
    const place = { sessionId: 's1', requestId: 'r1' };
    expect(emitted).toEqual([
      { event: 'router_update', data: { ...place, from: 'main', to: 'clerk', step: 'call' } },
      { event: 'router_update', data: { ...place, from: 'clerk', to: 'main', step: 'return' } },
    ]);
  });

  it('uses the model and the prompt of the agent, which knows its call', async () => {
    const prompt: SubAgent['prompt'] = async ({ user, toolCallId }) =>
      `You buy in ${user.timezone}: ${toolCallId}.`;
    const subAgents = [{ ...clerk, prompt, model: 'utility' as const }];
    const { find, subModel, models } = await gather([{ subAgents }], { subScript: [say('Ok.')] });
    await find(NAME).run({ task: 'Buy tea' }, createCall({ id: 'c9' }));
    expect(subModel.calls[0]?.system).toMatch(/^You buy in Africa\/Nairobi: c9\./);
    expect(models.get).toHaveBeenCalledExactlyOnceWith('utility');
  });

  it('returns what the agent says after its last tool call', async () => {
    const step = callTools(['t1', 'look', {}]);
    const subScript = [[{ type: 'text', text: 'Let me look.' } as const, ...step], say('Tea.')];
    const subAgents = [{ ...clerk, tools: [simple('look')] }];
    const { find, onToolEnd } = await gather([{ subAgents }], { subScript });
    expect(await find(NAME).run({ task: 'Buy' }, createCall())).toBe('Tea.');
    const ended = expect.objectContaining({ name: 'look', status: 'done' });
    expect(onToolEnd).toHaveBeenCalledExactlyOnceWith(ended, expect.any(Number));
  });

  it.each<[string, Partial<SubAgent>, readonly ScriptedStep[], string]>([
    ['says nothing', {}, [say(' \n')], 'The agent ended without an answer.'],
    ['has no prompt', { prompt: () => Promise.reject(new Error('x')) }, [], 'could not be set up'],
    ['has no text as prompt', { prompt: (() => 7) as () => never }, [], 'could not be set up'],
  ])('fails if the agent %s, and still shows its end', async (_, changes, subScript, text) => {
    const subAgents = [{ ...clerk, ...changes }];
    const { find, emitted } = await gather([{ subAgents }], { subScript });
    await expect(find(NAME).run({ task: 'Buy' }, createCall())).rejects.toThrow(text);
    expect(emitted.at(-1)).toMatchObject({ data: { from: 'clerk', step: 'return' } });
  });

  it('ends with the call', async () => {
    const call = new AbortController();
    const subScript = [
      async function* () {
        yield { type: 'text' as const, text: 'Well' };
        call.abort(new Error('too late'));
        await new Promise(() => undefined);
      },
    ];
    const { find } = await gather([{ subAgents: [clerk] }], { subScript });
    const run = find(NAME).run({ task: 'Buy' }, createCall({ signal: call.signal }));
    await expect(run).rejects.toThrow('too late');
  });
});
