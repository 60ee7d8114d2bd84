import type { TurnContext } from '@sibyl/plugin-kit';
import type { TurnUcan } from '@sibyl/plugin-kit/host';
import { hashJson, type JsonObject, type Rule } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { answered, MemoryJournal } from '../../../test/support/agent/memory-journal.js';
import type { AgentCall, AgentTool } from '../../agent/agent.js';
import { CallInterrupts } from '../../agent/call-interrupts.js';
import {
  buildInterruptKey,
  type InterruptAnswer,
  type InterruptRequest,
} from '../../agent/steps.js';
import { toAgentTool } from '../../agent/tool-schema.js';
import { LiveRules } from '../../auth/user-rules.js';
import type { ApprovalAnswer } from '../../store/approval-store.js';
import { Hooks } from './hooks.js';
import { type RanCall, type ToolFacts, ToolPolicy } from './tool-policy.js';

const logger = pino({ level: 'silent' });
const FACTS = { tool: 'transfer', plugin: 'bank', getContext: () => ({}) as TurnContext };
const INPUT = { to: 'bob', amount: 50 };
const ask = (match: string): Rule => ({ match, effect: 'ask' });
const block = (match: string): Rule => ({ match, effect: 'block' });

interface PolicyOptions {
  readonly operator?: readonly string[];
  readonly rules?: readonly Rule[];
}

/** A policy with rules that can change, what it signed, and the calls that ran. */
async function createPolicy({ operator = [], rules: initial = [] }: PolicyOptions = {}) {
  let current = initial;
  const load = async () => ({ rules: current, cid: 'a', expiresAt: null, storedAt: 0 });
  const rules = new LiveRules({ load, watch: () => () => {}, logger });
  await rules.reload();
  const ran: RanCall[] = [];
  const signed: string[] = [];
  const createUcan = (plugin: string): TurnUcan => ({
    hasSigningKey: () => true,
    hasCapability: async ({ can }) => can !== 'store/unknown',
    requireCapability: async ({ can }) => void signed.push(`${plugin} requires ${can}`),
    mintInvocation: async ({ can }) => `${plugin} minted ${can}`,
    resolveServiceDid: async () => 'did:web:service',
  });
  const hooks = new Hooks(logger, 1000);
  const onRan = (call: RanCall) => void ran.push(call);
  const policy = new ToolPolicy({ operator, rules, hooks, createUcan, onRan });
  const change = (...changed: readonly Rule[]) => {
    current = changed;
    return rules.reload();
  };
  return { policy, rules, change, ran, signed };
}

type Run = AgentTool['run'];

/** A tool that records the inputs it runs with. */
function createTool(work: Run = async ({ amount }) => ({ transferred: amount })) {
  const inputs: JsonObject[] = [];
  const bound = toAgentTool({
    name: 'transfer',
    description: 'Transfers.',
    inputSchema: z.looseObject({ amount: z.number().max(1000), currency: z.string().default('€') }),
    run: (input, call) => {
      inputs.push(input);
      return work(input, call);
    },
  });
  if (!bound.ok) throw new Error(bound.error);
  return { tool: bound.ok.tool, inputs };
}

interface Earlier {
  readonly request: InterruptRequest;
  readonly answer: InterruptAnswer;
}

/** A call of the tool; `earlier` is what it asked before, with the answer. */
function createCall(earlier?: Earlier, { signal } = new AbortController()) {
  const answers = new Map(earlier && [[buildInterruptKey('', 'c1', 0), earlier.answer]]);
  const journal = new MemoryJournal([], answers);
  const asked = earlier ? [earlier.request] : [];
  const interrupts = new CallInterrupts({ journal, path: '', callId: 'c1', asked });
  return { interrupts, call: interrupts.createCall('c1', signal) };
}

const same = (tool: AgentTool) => tool;

interface GuardedCall extends Partial<ToolFacts> {
  readonly input?: JsonObject;
  readonly work?: Run;
  readonly wrap?: (tool: AgentTool) => AgentTool;
  readonly earlier?: Earlier;
}

/** Runs one call; returns its result or error, what it asks, and the inputs that reached the tool. */
async function runCall(policy: ToolPolicy, guarded: GuardedCall = {}) {
  const { input = INPUT, work, wrap = same, earlier, ...facts } = guarded;
  const { tool, inputs } = createTool(work);
  const { call, interrupts } = createCall(earlier);
  const run = policy.guard(tool, { ...FACTS, ...facts }, wrap).run(input, call);
  const [settled] = await Promise.allSettled([run]);
  const result = settled.status === 'fulfilled' ? settled.value : undefined;
  const error = settled.status === 'rejected' ? String(settled.reason) : undefined;
  return { result, error, asked: interrupts.pending.map(({ approval }) => approval), inputs };
}

/** A request for the approval of a call that an answer ends. */
async function decided(answer: InterruptAnswer, input: JsonObject = INPUT): Promise<Earlier> {
  const approval = { tool: 'transfer', plugin: 'bank', args: input, inputSchema: {} };
  const argsHash = await hashJson(input);
  const asked = { ...approval, argsHash, requiredBy: 'tool' } as const;
  return { request: { kind: 'confirmation', schema: {}, approval: asked }, answer };
}

const approve = (more: Partial<ApprovalAnswer> = {}) => answered({ decision: 'approve', ...more });
const deny = (more: Partial<ApprovalAnswer> = {}) => answered({ decision: 'deny', ...more });

describe('ToolPolicy.guard asks', () => {
  it.each<[string, PolicyOptions & Pick<ToolFacts, 'needsApproval'>, string | undefined]>([
    ['no rule', {}, undefined],
    ['a rule', { rules: [ask('transfer')] }, 'rules'],
    ['the operator', { operator: ['other', 'plugin:bank'] }, 'operator'],
    ['the operator and a rule', { operator: ['transfer'], rules: [ask('*')] }, 'operator'],
    [
      'the operator, though a rule allows it',
      { operator: ['transfer'], rules: [{ match: '*', effect: 'allow' }] },
      'operator',
    ],
    ['the tool and others', { needsApproval: true, operator: ['*'], rules: [ask('*')] }, 'tool'],
    ['a rule, though the tool does not', { needsApproval: false, rules: [ask('*')] }, 'rules'],
    ['the operator, for another tool', { operator: ['transfers'] }, undefined],
  ])('if it is required by %s', async (_, { needsApproval, ...options }, requiredBy) => {
    const { policy, ran } = await createPolicy(options);
    const { asked, inputs } = await runCall(policy, { needsApproval });
    expect(asked.map((approval) => approval?.requiredBy)).toEqual(requiredBy ? [requiredBy] : []);
    expect(inputs).toHaveLength(requiredBy ? 0 : 1);
    expect(ran).toHaveLength(requiredBy ? 0 : 1);
  });

  it('about the exact arguments, with the schema for edited ones', async () => {
    const { policy } = await createPolicy({ rules: [ask('*')] });
    const { tool } = createTool();
    const { call, interrupts } = createCall();
    const guarded = policy.guard(tool, FACTS, same);
    await expect(guarded.run(INPUT, call)).rejects.toThrow();
    expect(interrupts.pending).toMatchObject([{ kind: 'confirmation', schema: {}, callId: 'c1' }]);
    expect(interrupts.pending[0]?.approval).toEqual({
      tool: 'transfer',
      plugin: 'bank',
      args: INPUT,
      argsHash: await hashJson(INPUT),
      inputSchema: tool.inputSchema,
      requiredBy: 'rules',
    });
  });

  it.each<[string, () => unknown, number]>([
    ['returns true', () => true, 1],
    ['returns false', () => false, 0],
    ['resolves to false', async () => false, 0],
    ['returns nothing', () => undefined, 1],
    ['returns zero', () => 0, 1],
    ['throws', () => Promise.reject(new Error('broken')), 1],
  ])('if needsApproval %s', async (_, needs, count) => {
    const { policy } = await createPolicy();
    const needsApproval = needs as () => boolean;
    expect((await runCall(policy, { needsApproval })).asked).toHaveLength(count);
  });

  it('the tool no more once the user has decided', async () => {
    const { policy } = await createPolicy();
    const needsApproval = vi.fn(() => true);
    const { inputs } = await runCall(policy, { needsApproval, earlier: await decided(approve()) });
    expect(inputs).toEqual([INPUT]);
    expect(needsApproval).not.toHaveBeenCalled();
  });

  it('needsApproval with the input and the context of the call', async () => {
    const { policy } = await createPolicy();
    const seen: unknown[] = [];
    const needsApproval: ToolFacts['needsApproval'] = (input, { toolCallId, signal, history }) => {
      seen.push([input, toolCallId, signal.aborted, history]);
      return false;
    };
    const context = { history: [] as TurnContext['history'] } as TurnContext;
    await runCall(policy, { needsApproval, getContext: () => context });
    expect(seen).toEqual([[INPUT, 'c1', false, []]]);
  });

  it.each<[string, JsonObject, string]>([
    ['is too long', { amount: 1, text: 'x'.repeat(128 * 1024) }, '131072 characters'],
    ['has too many values', { amount: 1, list: Array(10_000).fill(1) }, '10000 values'],
    ['is too deep', { amount: 1, deep: nest(100) }, '100 levels'],
    ['has half a surrogate pair', { amount: 1, text: '\ud800' }, 'invalid Unicode'],
  ])('nothing about an input that %s, and does not run it', async (_, input, reason) => {
    const { policy } = await createPolicy({ operator: ['*'] });
    const { error, asked, inputs } = await runCall(policy, { input });
    expect(error).toContain('Not run');
    expect(error).toContain(reason);
    expect([asked, inputs]).toEqual([[], []]);
  });

  it('about an input as large as an approval can be', async () => {
    const { policy } = await createPolicy({ operator: ['*'] });
    const long = { amount: 1, text: 'x'.repeat(127 * 1024), deep: nest(99) };
    const many = { amount: 1, list: Array(9_997).fill(1) };
    for (const input of [long, many])
      expect((await runCall(policy, { input })).asked).toMatchObject([{ args: input }]);
  });
});

/** So many levels of lists. */
function nest(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level++) value = [value];
  return value;
}

describe('ToolPolicy.guard after a decision', () => {
  it('runs an approved call once', async () => {
    const { policy, ran } = await createPolicy();
    const { tool, inputs } = createTool();
    const { call } = createCall(await decided(approve()));
    const guarded = policy.guard(tool, { ...FACTS, needsApproval: true }, same);
    expect(await guarded.run(INPUT, call)).toEqual({ transferred: 50 });
    await expect(guarded.run(INPUT, call)).rejects.toThrow('used up');
    expect(inputs).toEqual([INPUT]);
    expect(ran).toEqual([{ callId: 'c1', tool: 'transfer', outcome: 'done' }]);
  });

  it('asks again if a middleware has changed what was approved', async () => {
    const { policy } = await createPolicy();
    const wrap = (tool: AgentTool): AgentTool => ({
      ...tool,
      run: (input, call) => tool.run({ ...input, amount: 51 }, call),
    });
    const earlier = await decided(approve());
    const { asked, inputs } = await runCall(policy, { wrap, earlier });
    expect(asked).toMatchObject([{ args: { to: 'bob', amount: 51 }, requiredBy: 'tool' }]);
    expect(inputs).toEqual([]);
  });

  it.each<[string, InterruptAnswer, string]>([
    ['denied', deny(), 'denied this call without a reason'],
    ['denied with a reason', deny({ reason: 'too much' }), 'denied this call. Reason: too much'],
    ['denied with other arguments', deny({ args: { amount: 1 } }), 'denied this call'],
    ['denied with invalid arguments', deny({ args: { amount: 'x' } }), 'denied this call'],
    ['expired', { status: 'expired' }, 'expired without an answer'],
    ['cancelled', { status: 'cancelled' }, 'another message'],
  ])('does not run a call that was %s, even if no rule asks any more', async (_, answer, text) => {
    const { policy, ran } = await createPolicy();
    const { error, inputs, asked } = await runCall(policy, { earlier: await decided(answer) });
    expect(error).toContain(text);
    expect([inputs, asked, ran]).toEqual([[], [], []]);
  });

  it('does not run an approved call that the rules block meanwhile', async () => {
    const { policy } = await createPolicy({ rules: [block('transfer')] });
    const { error, inputs } = await runCall(policy, { earlier: await decided(approve()) });
    expect(error).toContain('the rules of the user block this tool');
    expect(inputs).toEqual([]);
  });

  it('runs with edited arguments, as the schema completes them, and says so to the model', async () => {
    const { policy } = await createPolicy();
    const args = { to: 'carol', amount: 20 };
    const earlier = await decided(approve({ args }));
    const { result, inputs } = await runCall(policy, { earlier });
    expect(inputs).toEqual([{ ...args, currency: '€' }]);
    expect(result).toEqual({
      note: expect.stringContaining('changed the input'),
      input: args,
      result: { transferred: 20 },
    });
  });

  it('runs with edited arguments that a middleware leaves as the user wrote them', async () => {
    const { policy } = await createPolicy();
    const args = { to: 'carol', amount: 20 };
    const wrap = (tool: AgentTool): AgentTool => ({
      ...tool,
      run: ({ currency: _, ...input }, call) => tool.run(input, call),
    });
    const { inputs } = await runCall(policy, { wrap, earlier: await decided(approve({ args })) });
    expect(inputs).toEqual([args]);
  });

  it('does not run what the user has replaced, even if a middleware changes it back', async () => {
    const { policy } = await createPolicy();
    const wrap = (tool: AgentTool): AgentTool => ({
      ...tool,
      run: (_input, call) => tool.run(INPUT, call),
    });
    const earlier = await decided(approve({ args: { ...INPUT, amount: 20 } }));
    const { error, inputs } = await runCall(policy, { wrap, earlier });
    expect(error).toContain('only with another input');
    expect(inputs).toEqual([]);
  });

  it('passes edited arguments through middlewares, which may restrict them', async () => {
    const { policy } = await createPolicy();
    const wrap = (tool: AgentTool): AgentTool => ({
      ...tool,
      run: async (input, call) => {
        if (Number(input.amount) > 100) throw new Error('over the limit');
        return tool.run(input, call);
      },
    });
    const earlier = await decided(approve({ args: { to: 'bob', amount: 500 } }));
    const { error, inputs } = await runCall(policy, { wrap, earlier });
    expect(error).toContain('over the limit');
    expect(inputs).toEqual([]);
  });

  it('does not run edited arguments that do not fit the tool', async () => {
    const { policy } = await createPolicy();
    const earlier = await decided(approve({ args: { to: 'bob', amount: 5000, currency: 1 } }));
    const { error, inputs } = await runCall(policy, { earlier });
    expect(error).toMatch(/does not fit: amount.*; currency/);
    expect(inputs).toEqual([]);
  });
});

describe('ToolPolicy.guard after several decisions about a call', () => {
  const CHANGED = { ...INPUT, amount: 51 };

  /** Runs a call with the first input after the user has approved the second one. */
  async function runFirst(first: InterruptAnswer) {
    const { policy } = await createPolicy();
    const { tool, inputs } = createTool();
    const earlier = [await decided(first), await decided(approve(), CHANGED)];
    const answers = earlier.map(
      ({ answer }, n) => [buildInterruptKey('', 'c1', n), answer] as const,
    );
    const journal = new MemoryJournal([], new Map(answers));
    const asked = earlier.map((each) => each.request);
    const interrupts = new CallInterrupts({ journal, path: '', callId: 'c1', asked });
    const guarded = policy.guard(tool, FACTS, same);
    const call = interrupts.createCall('c1', new AbortController().signal);
    return { run: () => guarded.run(INPUT, call), inputs, interrupts };
  }

  it('runs what was approved before, once', async () => {
    const { run, inputs, interrupts } = await runFirst(approve());
    expect(await run()).toEqual({ transferred: 50 });
    await expect(run()).rejects.toThrow();
    expect(inputs).toEqual([INPUT]);
    expect(interrupts.pending).toMatchObject([{ approval: { args: INPUT, requiredBy: 'tool' } }]);
  });

  it('does not run what was denied before', async () => {
    const { run, inputs, interrupts } = await runFirst(deny({ reason: 'too little' }));
    await expect(run()).rejects.toThrow('denied this call. Reason: too little');
    expect([inputs, interrupts.pending]).toEqual([[], []]);
  });
});

describe('ToolPolicy.guard while a call runs', () => {
  /** Starts a call that ends when its signal is aborted. */
  async function hang(policy: ToolPolicy, earlier?: Earlier, turn = new AbortController()) {
    const started = Promise.withResolvers<AbortSignal>();
    const { tool } = createTool((_, { signal }) => {
      started.resolve(signal);
      return new Promise(() => {});
    });
    const { call } = createCall(earlier, turn);
    const run = policy.guard(tool, FACTS, same).run(INPUT, call);
    run.then(() => started.reject(new Error('it has ended')), started.reject);
    return { run, signal: await started.promise };
  }

  it.each([block('transfer'), ask('plugin:bank')])('stops it if $effect begins', async (rule) => {
    const { policy, change, ran } = await createPolicy();
    const { run, signal } = await hang(policy);
    await change(rule);
    expect(signal.aborted).toBe(true);
    await expect(run).rejects.toThrow('the user has changed the rules');
    expect(ran).toEqual([{ callId: 'c1', tool: 'transfer', outcome: 'error' }]);
  });

  it('leaves it alone if other tools are blocked', async () => {
    const { policy, change } = await createPolicy();
    const { signal } = await hang(policy);
    await change(block('other'), ask('plugin:mail'));
    expect(signal.aborted).toBe(false);
  });

  it('leaves an approved one alone if rules ask, but not if they block', async () => {
    const { policy, change } = await createPolicy();
    const { run, signal } = await hang(policy, await decided(approve()));
    await change(ask('*'));
    expect(signal.aborted).toBe(false);
    await change(block('*'));
    expect(signal.aborted).toBe(true);
    await expect(run).rejects.toThrow('the user has changed the rules');
  });

  it('stops it with its turn', async () => {
    const { policy, ran } = await createPolicy();
    const turn = new AbortController();
    const { run, signal } = await hang(policy, undefined, turn);
    turn.abort(new Error('the turn is over'));
    expect(signal.aborted).toBe(true);
    await expect(run).rejects.toThrow('the turn is over');
    expect(ran).toMatchObject([{ outcome: 'error' }]);
  });

  it.each([
    ['returns', async () => 1],
    ['fails', () => Promise.reject(new Error('no money'))],
  ])('no longer follows the rules once it %s', async (_, work) => {
    const { policy, rules } = await createPolicy();
    const stop = vi.fn();
    vi.spyOn(rules, 'onChange').mockReturnValue(stop);
    await runCall(policy, { work });
    expect(stop).toHaveBeenCalledTimes(1);
  });

  it('reports a failure', async () => {
    const { policy, ran } = await createPolicy();
    const work = () => Promise.reject(new Error('no money'));
    expect((await runCall(policy, { work })).error).toContain('no money');
    expect(ran).toEqual([{ callId: 'c1', tool: 'transfer', outcome: 'error' }]);
  });

  it('lets it wait for an answer even if the tool catches that, and reports nothing', async () => {
    const { policy, ran } = await createPolicy();
    const question = { kind: 'input_required', schema: {} } as const;
    const work = async (_: JsonObject, call: AgentCall) => {
      try {
        return call.interrupt(question);
      } catch {
        return 'caught';
      }
    };
    const { result, asked } = await runCall(policy, { work });
    expect([result, asked, ran]).toEqual([undefined, [undefined], []]);
  });
});

describe('ToolPolicy.isBlocked', () => {
  it('is true only for what the rules block', async () => {
    const { policy } = await createPolicy({ operator: ['*'], rules: [block('a'), ask('b')] });
    const blocked = ['a', 'b', 'c'].map((tool) => policy.isBlocked({ tool, plugin: 'bank' }));
    expect(blocked).toEqual([true, false, false]);
  });
});

describe('ToolPolicy.restrictUcan', () => {
  const WRITE = { can: 'store/write', with: 'ixo:files' };
  const MINT = { ...WRITE, audience: 'did:web:service' };

  it('signs what no rule is about, for the plugin', async () => {
    const { policy, signed } = await createPolicy({ rules: [block('can:mail/*')] });
    const ucan = policy.restrictUcan('bank');
    expect(await ucan.hasCapability(WRITE)).toBe(true);
    expect(await ucan.hasCapability({ ...WRITE, can: 'store/unknown' })).toBe(false);
    await ucan.requireCapability(WRITE);
    expect(await ucan.mintInvocation(MINT)).toBe('bank minted store/write');
    expect(signed).toEqual(['bank requires store/write']);
    expect(await ucan.resolveServiceDid('https://service')).toBe('did:web:service');
  });

  it('signs nothing that the rules block, not even in an approved call', async () => {
    const { policy, signed } = await createPolicy({ rules: [block('can:store/*')] });
    const { call } = createCall(await decided(approve()));
    const ucan = policy.restrictUcan('bank', call);
    expect(await ucan.hasCapability(WRITE)).toBe(false);
    await expect(ucan.requireCapability(WRITE)).rejects.toThrow('block store/write');
    await expect(ucan.mintInvocation(MINT)).rejects.toThrow('block store/write');
    expect(signed).toEqual([]);
  });

  it.each<[string, PolicyOptions]>([
    ['rules', { rules: [ask('can:store/write')] }],
    ['the operator', { operator: ['can:store/*'] }],
  ])('signs what %s ask about in a call only', async (_, options) => {
    const { policy, signed } = await createPolicy(options);
    const outside = policy.restrictUcan('bank');
    expect(await outside.hasCapability(WRITE)).toBe(true);
    const refusal = 'store/write needs the approval of a tool call';
    await expect(outside.requireCapability(WRITE)).rejects.toThrow(refusal);
    await expect(outside.mintInvocation(MINT)).rejects.toThrow(refusal);
    const all = outside.mintInvocation({ ...MINT, can: '*' });
    await expect(all).rejects.toThrow('* needs the approval of a tool call');
    const { call } = createCall();
    await expect(policy.restrictUcan('bank', call).mintInvocation(MINT)).rejects.toThrow(refusal);
    expect(signed).toEqual([]);
  });

  it('lets the call wait for approval, and signs once it is approved', async () => {
    const { policy } = await createPolicy({ rules: [ask('can:store/write')] });
    const work: Run = (_, call) => policy.restrictUcan('bank', call).mintInvocation(MINT);
    const { asked } = await runCall(policy, { work });
    expect(asked).toMatchObject([{ tool: 'transfer', args: INPUT, requiredBy: 'rules' }]);
    const { result } = await runCall(policy, { work, earlier: await decided(approve()) });
    expect(result).toBe('bank minted store/write');
  });
});

describe('ToolPolicy.guard, with a schema that makes other values than JSON,', () => {
  const entries = z.record(z.string(), z.number());
  const when = z.iso.datetime();

  /** Asks for approval, approves what is shown, and runs again; returns what was shown and what the tool received. */
  async function approveCall(inputSchema: z.ZodType, sent: JsonObject, wrap = same) {
    const { policy } = await createPolicy({ rules: [ask('*')] });
    const received: unknown[] = [];
    const run: Run = async (input) => void received.push(input);
    const bound = toAgentTool({ name: 'transfer', description: 'Transfers.', inputSchema, run });
    if (!bound.ok) throw new Error(bound.error);
    const { tool } = bound.ok;
    const guarded = policy.guard(tool, FACTS, wrap);
    const attempt = async (earlier?: Earlier) => {
      const { call, interrupts } = createCall(earlier);
      const { ok } = await tool.check(sent);
      const [settled] = await Promise.allSettled([guarded.run(ok ?? {}, call)]);
      const error = settled.status === 'rejected' ? String(settled.reason) : '';
      return { error, shown: interrupts.pending[0]?.approval?.args };
    };
    const { shown, error } = await attempt();
    expect(received).toEqual([]);
    if (!shown) return { error };
    const again = await attempt(await decided(approve(), shown));
    return { shown, received: received[0], error: again.error };
  }

  it.each<[string, z.ZodType, JsonObject]>([
    [
      'a Map',
      z.object({ to: entries.transform((of) => new Map(Object.entries(of))) }),
      { to: { bob: 50 } },
    ],
    ['a Set', z.object({ to: z.array(z.string()).transform((of) => new Set(of)) }), { to: ['b'] }],
    [
      'bytes that it would not accept again',
      z.object({ data: z.string().transform((text) => new TextEncoder().encode(text)) }),
      { data: 'pay bob' },
    ],
    ['a BigInt', z.object({ amount: z.number().transform((of) => BigInt(of)) }), { amount: 5 }],
    ['not a number', z.object({ amount: z.number().transform(() => Number.NaN) }), { amount: 5 }],
    [
      'an object that hides a field',
      z.object({ to: z.string() }).transform(({ to }) => ({ to, toJSON: () => ({ to: 'me' }) })),
      { to: 'bob' },
    ],
  ])('refuses %s instead of showing something else', async (_, schema, sent) => {
    const { shown, error } = await approveCall(schema, sent);
    expect(shown).toBeUndefined();
    expect(error).toContain('cannot be shown as JSON');
  });

  it('runs a date that is shown as its text', async () => {
    const at = '2026-01-02T03:04:05.000Z';
    const schema = z.object({ at: when.pipe(z.coerce.date()).or(z.date()) });
    const { shown, received } = await approveCall(schema, { at });
    expect(shown).toEqual({ at });
    expect(received).toEqual({ at: new Date(at) });
  });

  it('runs what is shown of a schema that would change it again', async () => {
    const schema = z.object({ to: z.string().transform((name) => `dear ${name}`) });
    const { shown, received } = await approveCall(schema, { to: 'bob' });
    expect(shown).toEqual({ to: 'dear bob' });
    expect(received).toEqual(shown);
  });

  it('runs no fields that only the object has, such as those that a middleware hides', async () => {
    const hide = (tool: AgentTool): AgentTool => ({
      ...tool,
      run: (input, call) =>
        tool.run(Object.defineProperty({ ...input }, 'secret', { value: 'to eve' }), call),
    });
    const schema = z.object({ to: z.string(), note: z.string().optional() });
    const { shown, received } = await approveCall(schema, { to: 'bob' }, hide);
    expect(shown).toEqual({ to: 'bob' });
    expect((received as { secret?: string }).secret).toBeUndefined();
  });
});
