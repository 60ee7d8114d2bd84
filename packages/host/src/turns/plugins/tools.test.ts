import {
  defineSubAgent,
  defineTool,
  type Middleware,
  type SubAgent,
  type Tool,
  type ToolContext,
} from '@sibyl/plugin-kit';
import { type LoadedPlugin, PluginManifest, type TurnUcan } from '@sibyl/plugin-kit/host';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { listFinishedCalls, requestTo } from '../../../test/support/agent/agent-requests.js';
import {
  answered,
  MemoryJournal,
  runUntilCrash,
} from '../../../test/support/agent/memory-journal.js';
import {
  callTools,
  ScriptedModel,
  type ScriptedStep,
  say,
} from '../../../test/support/agent/scripted-model.js';
import { testPlugin } from '../../../test/support/plugin.js';
import { PausedError } from '../../agent/steps.js';
import { LiveRules } from '../../auth/user-rules.js';
import { Hooks } from './hooks.js';
import { MiddlewareChain } from './middlewares.js';
import { ToolPolicy, TurnReach } from './tool-policy.js';
import { gatherTools } from './tools.js';
import { TurnContexts } from './turn-context.js';

interface Contribution {
  readonly tools?: readonly Tool[];
  readonly subAgents?: readonly SubAgent[];
  readonly middlewares?: readonly Middleware[];
}

const log: { readonly msg: string }[] = [];
const logger = pino({}, { write: (line) => void log.push(JSON.parse(line)) });

function loadPlugin({ tools = [], subAgents = [], middlewares = [] }: Contribution): LoadedPlugin {
  const plugin = testPlugin('shop', {});
  return {
    plugin,
    name: 'shop',
    manifest: PluginManifest.parse({ ...plugin.manifest, visibility: 'always' }),
    config: {},
    services: undefined,
    shared: {},
    tools,
    subAgents,
    middlewares,
    gate: undefined,
    nestModules: [],
    openRoutes: [],
    routes: [],
  };
}

/** One attempt of a turn with what a plugin contributes; `subScript` is what the model of sub-agents says. */
async function attempt(
  journal: MemoryJournal,
  contribution: Contribution,
  script: readonly ScriptedStep[],
  subScript: readonly ScriptedStep[] = [],
) {
  const plugins = [loadPlugin(contribution)];
  const { signal } = new AbortController();
  const hooks = new Hooks(logger, 1000);
  const events: unknown[] = [];
  const contexts = await TurnContexts.open(
    {
      request: { message: {} },
      facts: {
        user: { did: 'did:key:z1', timezone: 'UTC', currentTime: '2026-01-01T00:00:00Z' },
        session: {},
      },
      store: { secrets: { of: () => ({}) }, blobs: { of: () => ({}) } },
      sessionState: { of: () => ({}) },
      createUcan: () => ({}),
      emit: { router: (event: unknown) => events.push(event), toolCall: () => undefined },
      warn: () => undefined,
      hooks,
      reach: new TurnReach({}),
      loggerFor: () => logger,
      signal,
    } as unknown as Parameters<typeof TurnContexts.open>[0],
    plugins,
  );
  const reach = new TurnReach({});
  const chain = new MiddlewareChain({ contexts, hooks, reach, signal });
  const model = new ScriptedModel(...script);
  const request = requestTo(model, { signal });
  const subModel = new ScriptedModel(...subScript);
  const models = { get: () => subModel };
  const warn = () => undefined;
  const rules = new LiveRules({ load: async () => undefined, watch: () => () => {}, logger });
  const createUcan = () => ({}) as TurnUcan;
  const policy = new ToolPolicy({ operator: [], rules, hooks, createUcan, onRan: () => {} });
  const shared = { plugins, contexts, policy, reach, chain, hooks, warn };
  const gathered = await gatherTools({ ...request, models, ...shared, surface: undefined });
  const tools = gathered.map(({ tool }) => tool);
  const ended = await runUntilCrash({ ...request, tools: () => tools }, journal);
  const { parts = [], thrown } = ended ?? {};
  const interrupts = thrown instanceof PausedError ? thrown.interrupts : [];
  return { thrown, interrupts, ended: listFinishedCalls(parts), model, subModel, events };
}

const Answer = z.object({ ok: z.boolean(), note: z.string().default('none') });

/** A shop whose tool asks before it acts. */
function createShop() {
  const effects: unknown[] = [];
  const buy = defineTool({
    name: 'buy',
    description: 'Buys something',
    inputSchema: z.object({ what: z.string() }),
    async *run({ what }, { interrupt }) {
      yield `About to buy ${what}`;
      const { ok, note } = await interrupt({
        kind: 'confirmation',
        schema: Answer,
        data: { question: `Buy ${what}?` },
        expiresInSeconds: 60,
      });
      if (ok) effects.push(`${what} (${note})`);
      return { bought: ok };
    },
  });
  return { effects, buy };
}

const BUY = callTools(['c1', 'buy', { what: 'tea' }]);

describe('interrupt of a tool’s context', () => {
  it('asks with JSON Schema, and returns the answer as the schema types it', async () => {
    const { effects, buy } = createShop();
    const journal = new MemoryJournal();
    const { interrupts } = await attempt(journal, { tools: [buy] }, [BUY]);
    expect(interrupts).toEqual([
      {
        kind: 'confirmation',
        schema: expect.objectContaining({ type: 'object', required: ['ok'] }),
        data: { question: 'Buy tea?' },
        expiresInSeconds: 60,
        callId: 'c1',
        path: '',
        key: 'c1',
      },
    ]);
    expect(effects).toEqual([]);
    const next = journal.next({ c1: answered({ ok: true }) });
    const { ended } = await attempt(next, { tools: [buy] }, [say('Done.')]);
    expect(ended).toMatchObject([{ status: 'done', output: '{"bought":true}' }]);
    expect(effects).toEqual(['tea (none)']);
  });

  it('fails the call if the answer does not match the schema of the tool', async () => {
    const { effects, buy } = createShop();
    const journal = new MemoryJournal();
    await attempt(journal, { tools: [buy] }, [BUY]);
    const next = journal.next({ c1: answered({ ok: 'perhaps' }) });
    const { ended } = await attempt(next, { tools: [buy] }, [say('Hm.')]);
    expect(ended[0]?.output).toContain('The answer does not match the schema of the question: ok');
    expect(effects).toEqual([]);
  });

  it.each([
    ['an unknown kind', { kind: 'poke', schema: {} }, 'The kind of a question must be one of'],
    ['a schema that cannot be checked', ask({ unevaluatedItems: false }), 'is not supported'],
    ['a reference to another document', ask({ $ref: 'https://a.example' }), 'another document'],
    ['data that is too large', { ...ask({}), data: 'x'.repeat(200_000) }, 'may hold at most'],
    ['a time in the past', { ...ask({}), expiresInSeconds: -1 }, 'must be a positive number'],
  ])('reports %s as an error of the tool', async (_, request, text) => {
    const odd = defineTool({
      name: 'odd',
      description: 'Asks oddly',
      inputSchema: z.object({}),
      run: (_input, { interrupt }) => interrupt(request as Parameters<typeof interrupt>[0]),
    });
    const script = [callTools(['c1', 'odd', {}]), say('Hm.')];
    const { ended, thrown } = await attempt(new MemoryJournal(), { tools: [odd] }, script);
    expect(thrown).toBeUndefined();
    expect(ended[0]?.output).toContain(text);
  });

  function ask(schema: Record<string, unknown>) {
    return { kind: 'input_required' as const, schema };
  }

  it('passes through the middlewares around the tool, which see no result of it', async () => {
    const { effects, buy } = createShop();
    const results: unknown[] = [];
    const watch: Middleware = {
      name: 'watch',
      wrapTool: async (call, next) => {
        const result = await next(call);
        results.push(result);
        return result;
      },
    };
    const journal = new MemoryJournal();
    const contribution = { tools: [buy], middlewares: [watch] };
    const { interrupts } = await attempt(journal, contribution, [BUY]);
    expect([interrupts.length, results]).toEqual([1, []]);
    const next = journal.next({ c1: answered({ ok: true, note: 'green' }) });
    await attempt(next, contribution, [say('Done.')]);
    expect([effects, results]).toEqual([['tea (green)'], [{ bought: true }]]);
  });

  it.each<[string, Partial<Middleware>]>([
    ['returns something else', { wrapTool: (call, next) => next(call).catch(() => 'else') }],
    [
      'throws something else',
      {
        wrapTool: (call, next) =>
          next(call).catch(() => {
            throw new Error('else');
          }),
      },
    ],
    [
      'throws something else and may be skipped',
      {
        onFailure: 'skip',
        wrapTool: (call, next) =>
          next(call).catch(() => {
            throw new Error('else');
          }),
      },
    ],
    ['calls the tool again', { wrapTool: (call, next) => next(call).catch(() => next(call)) }],
  ])('pauses the turn even if a middleware %s', async (_, middleware) => {
    const { effects, buy } = createShop();
    let runs = 0;
    const count: Middleware = {
      name: 'count',
      wrapTool: (call, next) => {
        runs += 1;
        return next(call);
      },
    };
    const lines = log.length;
    const journal = new MemoryJournal();
    const middlewares = [{ name: 'outer', ...middleware }, count];
    const { interrupts, ended } = await attempt(journal, { tools: [buy], middlewares }, [BUY]);
    expect([interrupts.length, ended, runs]).toEqual([1, [], 1]);
    expect(log.slice(lines)).toEqual([]);
    const next = journal.next({ c1: answered({ ok: true }) });
    const again = await attempt(next, { tools: [buy], middlewares }, [say('Done.')]);
    expect(again.ended).toMatchObject([{ output: '{"bought":true}' }]);
    expect(effects).toHaveLength(1);
  });

  it.each(['fail', 'skip'] as const)(
    'of a middleware with onFailure %s keeps the tool from running until it is answered',
    async (onFailure) => {
      const effects: string[] = [];
      const act = defineTool({
        name: 'act',
        description: 'Acts',
        inputSchema: z.object({}),
        run: () => {
          effects.push('acted');
          return 'ok';
        },
      });
      const seen: string[] = [];
      const guard: Middleware = {
        name: 'guard',
        onFailure,
        wrapTool: async (call, next, { interrupt, toolCallId }) => {
          seen.push(toolCallId);
          const ok = await interrupt({ kind: 'confirmation', schema: z.boolean() });
          return ok ? next(call) : 'denied';
        },
      };
      const contribution = { tools: [act], middlewares: [guard] };
      const lines = log.length;
      const journal = new MemoryJournal();
      const paused = await attempt(journal, contribution, [callTools(['c1', 'act', {}])]);
      expect([paused.interrupts.length, effects, log.slice(lines)]).toEqual([1, [], []]);
      const denied = journal.next({ c1: answered(false) });
      const { ended } = await attempt(denied, contribution, [say('Well.')]);
      expect([ended[0]?.output, effects]).toEqual(['"denied"', []]);
      await attempt(journal.next({ c1: answered(true) }), contribution, [say('Done.')]);
      expect(effects).toEqual(['acted']);
      expect(seen).toEqual(['c1', 'c1', 'c1']);
    },
  );

  it('that a middleware catches does not let it run the tool', async () => {
    const { effects, buy } = createShop();
    const hasty: Middleware = {
      name: 'hasty',
      wrapTool: async (call, next, { interrupt }) => {
        await interrupt({ kind: 'confirmation', schema: z.boolean() }).catch(() => undefined);
        return next(call);
      },
    };
    const contribution = { tools: [buy], middlewares: [hasty] };
    const { interrupts } = await attempt(new MemoryJournal(), contribution, [BUY]);
    expect(interrupts).toMatchObject([{ schema: { type: 'boolean' } }]);
    expect(effects).toEqual([]);
  });
});

describe('a sub-agent of a plugin', () => {
  const callClerk = callTools(['m1', 'call_clerk_agent', { task: 'Buy tea' }]);
  const clerkWith = (tools: readonly Tool[]) =>
    defineSubAgent({ name: 'clerk', description: 'Buys', prompt: 'You buy.', tools });

  it('pauses the turn at a question of its tool, and continues with the answer', async () => {
    const { effects, buy } = createShop();
    const contribution = { subAgents: [clerkWith([buy])] };
    const journal = new MemoryJournal();
    const { interrupts } = await attempt(journal, contribution, [callClerk], [BUY]);
    expect(interrupts).toMatchObject([{ callId: 'c1', path: 'm1', key: 'm1/c1' }]);
    const next = journal.next({ 'm1/c1': answered({ ok: true }) });
    const done = [say('Done.')];
    const { ended, subModel, events } = await attempt(next, contribution, done, [say('Bought.')]);
    expect(effects).toEqual(['tea (none)']);
    expect(ended).toMatchObject([{ id: 'm1', output: '"Bought."' }]);
    expect(subModel.lastMessages).toMatchObject([
      { role: 'user', content: 'Buy tea' },
      { role: 'assistant', toolCalls: [{ id: 'c1' }] },
      { role: 'tool', results: [{ id: 'c1', output: '{"bought":true}' }] },
    ]);
    expect(events).toMatchObject([{ step: 'call' }, { step: 'return' }]);
  });

  it('pauses the turn even if a middleware catches the pause', async () => {
    const { buy } = createShop();
    const swallow: Middleware = {
      name: 'swallow',
      wrapTool: (call, next) => next(call).catch(() => 'swallowed'),
    };
    const contribution = { subAgents: [clerkWith([buy])], middlewares: [swallow] };
    const { interrupts } = await attempt(new MemoryJournal(), contribution, [callClerk], [BUY]);
    expect(interrupts).toMatchObject([{ key: 'm1/c1' }]);
  });

  it('shows middlewares which agent calls a tool', async () => {
    const callers: string[] = [];
    const watch: Middleware = {
      name: 'watch',
      wrapTool: (call, next) => {
        callers.push(`${call.agent}: ${call.name}`);
        return next(call);
      },
    };
    const contribution = { subAgents: [clerkWith([createBank(false).pay])], middlewares: [watch] };
    const scripts = [
      [callClerk, say('Done.')],
      [PAY, say('Paid.')],
    ] as const;
    const { ended } = await attempt(new MemoryJournal(), contribution, ...scripts);
    expect(ended).toMatchObject([{ id: 'm1', output: '"Paid."' }]);
    expect(callers).toEqual(['main: call_clerk_agent', 'clerk: pay']);
  });

  it('continues after a crash with the results it had', async () => {
    const runs: string[] = [];
    const journal = new MemoryJournal();
    const look = defineTool({
      name: 'look',
      description: 'Looks',
      inputSchema: z.object({}),
      run: (_, { toolCallId }: ToolContext) => {
        runs.push(toolCallId);
        return 'seen';
      },
    });
    const contribution = { subAgents: [clerkWith([look])] };
    const dying = () => {
      journal.flush();
      journal.crash();
      return [];
    };
    await attempt(journal, contribution, [callClerk], [callTools(['c1', 'look', {}]), dying]);
    const again = await attempt(journal.next(), contribution, [say('Done.')], [say('Seen.')]);
    expect(runs).toEqual(['c1']);
    expect(again.ended).toMatchObject([{ id: 'm1', status: 'done', output: '"Seen."' }]);
  });
});

/** A bank whose tool needs approval, and what it has done. */
function createBank(needsApproval: Tool['needsApproval'] = true) {
  const effects: unknown[] = [];
  const pay = defineTool({
    name: 'pay',
    description: 'Pays',
    inputSchema: z.object({ amount: z.number(), currency: z.string().default('EUR') }),
    needsApproval,
    run: (input) => {
      effects.push(input);
      return { paid: input.amount };
    },
  });
  return { effects, pay };
}

const PAY = callTools(['c1', 'pay', { amount: 5 }]);
const approve = (args?: object) => answered({ decision: 'approve', args });
const APPROVED = { amount: 5, currency: 'EUR' };

describe('needsApproval', () => {
  it('asks about the input as the tool receives it', async () => {
    const { effects, pay } = createBank();
    const { interrupts } = await attempt(new MemoryJournal(), { tools: [pay] }, [PAY]);
    expect(interrupts).toMatchObject([
      { approval: { tool: 'pay', plugin: 'shop', args: APPROVED, requiredBy: 'tool' } },
    ]);
    expect(effects).toEqual([]);
  });

  it.each<[string, Tool['needsApproval'], number]>([
    ['false', () => false, 0],
    ['a promise of false', async () => false, 0],
    ['a truthy value', () => 1 as never, 1],
    ['nothing', () => undefined as never, 1],
    ['an error', () => Promise.reject(new Error('broken')), 1],
  ])('that is a function and returns %s', async (_, needsApproval, asked) => {
    const { effects, pay } = createBank(needsApproval);
    const script = [PAY, say('Done.')];
    const { interrupts } = await attempt(new MemoryJournal(), { tools: [pay] }, script);
    expect([interrupts.length, effects.length]).toEqual([asked, 1 - asked]);
  });

  it('that changes its mind does not overrule a denial', async () => {
    const decisions = [true, false];
    const { effects, pay } = createBank(() => decisions.shift() ?? false);
    const journal = new MemoryJournal();
    await attempt(journal, { tools: [pay] }, [PAY]);
    const next = journal.next({ c1: answered({ decision: 'deny', reason: 'too much' }) });
    const { ended } = await attempt(next, { tools: [pay] }, [say('Fine.')]);
    expect(ended[0]?.output).toContain('too much');
    expect(effects).toEqual([]);
  });

  it('asks about what the middlewares make of the input, and runs exactly that', async () => {
    const { effects, pay } = createBank();
    const double: Middleware = {
      name: 'double',
      wrapTool: (call, next) =>
        next({ ...call, input: { ...call.input, amount: Number(call.input.amount) * 2 } }),
    };
    const journal = new MemoryJournal();
    const contribution = { tools: [pay], middlewares: [double] };
    const { interrupts } = await attempt(journal, contribution, [PAY]);
    expect(interrupts[0]?.approval?.args).toEqual({ amount: 10, currency: 'EUR' });
    await attempt(journal.next({ c1: approve() }), contribution, [say('Done.')]);
    expect(effects).toEqual([{ amount: 10, currency: 'EUR' }]);
  });

  it('asks again if the middlewares make something else of the input than was approved', async () => {
    const { effects, pay } = createBank();
    let amount = 1;
    const rise: Middleware = {
      name: 'rise',
      wrapTool: (call, next) => next({ ...call, input: { ...call.input, amount: amount++ } }),
    };
    const journal = new MemoryJournal();
    const contribution = { tools: [pay], middlewares: [rise] };
    await attempt(journal, contribution, [PAY]);
    const { interrupts } = await attempt(journal.next({ c1: approve() }), contribution, []);
    expect(interrupts[0]?.approval?.args).toMatchObject({ amount: 2 });
    expect(effects).toEqual([]);
  });

  it('passes edited arguments through the middlewares, which may refuse them', async () => {
    const { effects, pay } = createBank();
    const limit: Middleware = {
      name: 'limit',
      wrapTool: async (call, next) => {
        if (Number(call.input.amount) > 100) throw new OracleError('forbidden');
        return next(call);
      },
    };
    const contribution = { tools: [pay], middlewares: [limit] };
    const journal = new MemoryJournal();
    await attempt(journal, contribution, [PAY]);
    const large = journal.next({ c1: approve({ amount: 1000 }) });
    const refused = await attempt(large, contribution, [say('Hm.')]);
    expect(refused.ended).toMatchObject([{ status: 'error' }]);
    expect(effects).toEqual([]);
    const small = journal.next({ c1: approve({ amount: 7 }) });
    const { ended } = await attempt(small, contribution, [say('Done.')]);
    expect(effects).toEqual([{ amount: 7, currency: 'EUR' }]);
    expect(JSON.parse(ended[0]?.output ?? '')).toMatchObject({ input: { amount: 7 } });
  });

  it('lets a middleware that repeats calls run an approved one once', async () => {
    const { effects, pay } = createBank();
    const twice: Middleware = {
      name: 'twice',
      wrapTool: async (call, next) => {
        await next(call);
        return next(call);
      },
    };
    const contribution = { tools: [pay], middlewares: [twice] };
    const journal = new MemoryJournal();
    await attempt(journal, contribution, [PAY]);
    const { ended } = await attempt(journal.next({ c1: approve() }), contribution, [say('Hm.')]);
    expect(effects).toEqual([APPROVED]);
    expect(ended[0]?.output).toContain('used up');
  });

  it('fails a call whose input cannot be signed', async () => {
    const { effects, pay } = createBank();
    const odd = { ...pay, inputSchema: z.object({ text: z.string() }) } as Tool;
    const call = (text: string) => callTools(['c1', 'pay', { text }]);
    for (const [text, error] of [
      ['\ud800', 'invalid Unicode'],
      ['x'.repeat(200_000), 'may hold at most'],
    ] as const) {
      const script = [call(text), say('Hm.')];
      const { ended } = await attempt(new MemoryJournal(), { tools: [odd] }, script);
      expect(ended[0]?.output).toContain(error);
    }
    expect(effects).toEqual([]);
  });
});
