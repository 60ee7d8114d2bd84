import { randomUUID } from 'node:crypto';
import { defineTool, type Middleware, type SharedState, type TurnContext } from '@sibyl/plugin-kit';
import { type LoadedPlugin, PluginManifest, type TurnUcan } from '@sibyl/plugin-kit/host';
import type { ReplyPart } from '@sibyl/protocol';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { listFinishedCalls, runToEnd } from '../../../test/support/agent/agent-requests.js';
import {
  callTools,
  ScriptedModel,
  type ScriptedStep,
  say,
} from '../../../test/support/agent/scripted-model.js';
import { testPlugin } from '../../../test/support/plugin.js';
import { createActiveRun, createRecording } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { createQuestion } from '../../../test/support/test-interrupts.js';
import { finishTestRun, openTestSession, startTestRun } from '../../../test/support/test-runs.js';
import { createTurnRequest } from '../../../test/support/test-turns.js';
import { PausedError } from '../../agent/steps.js';
import type { DelegatedAuthority } from '../../auth/delegated-authority.js';
import type { OracleIdentity } from '../../auth/oracle-identity.js';
import { LiveRules, type UserRules } from '../../auth/user-rules.js';
import type { SessionKey } from '../../bus/event-bus.js';
import { PendingClientCalls } from '../../bus/pending-client-calls.js';
import type { Config } from '../../config/config.js';
import type { Models } from '../../models/models.js';
import type { Metrics } from '../../observability/metrics.js';
import type { Run } from '../../store/runs/run.js';
import { Hooks } from '../plugins/hooks.js';
import { TurnAccount } from '../start/gates.js';
import type { TurnAccess } from '../start/turn-access.js';
import type { TurnRequest } from '../turn-request.js';
import { ActiveRun } from './active-run.js';
import { TurnSetup } from './turn-setup.js';

const test = useStore('sqlite');

type Delegation = Awaited<ReturnType<DelegatedAuthority['findDelegation']>>;

interface Options {
  readonly run?: Run;
  readonly plugins?: readonly LoadedPlugin[];
  readonly settings?: Partial<Config['turns']>;
  readonly request?: Partial<Omit<TurnRequest, 'message'>>;
  readonly message?: Partial<TurnRequest['message']>;
  readonly progress?: ActiveRun['progress'];
  readonly findDelegation?: (() => Promise<Delegation>) | undefined;
  /** The scripts of the models. */
  readonly main?: readonly ScriptedStep[];
  readonly small?: readonly ScriptedStep[];
}

const SETTINGS: Config['turns'] = {
  ...{ instructions: undefined, maxSteps: 7, contextTokens: 10_000, maxPerUser: 1, maxPaused: 1 },
  ...{ approvals: [], resumesTurns: false, max: 1, maxCharacters: 10_000, maxMs: 60_000 },
  ...{ tokensPerDay: 1, hookTimeoutMs: 1000, streamsPerUser: 1, streamStallMs: 1000 },
  ...{ storeWaitMs: 1000, logMs: 1000 },
};

const createModel = (id: string, script: readonly ScriptedStep[] = []) =>
  Object.assign(new ScriptedModel(...script), { id });

/** Delegations, rules and metrics of a test, and what was asked of them. */
function createHost({ findDelegation }: Pick<Options, 'findDelegation'>) {
  const onUse = () => {};
  const closedRules = vi.fn();
  const delegations = vi.fn<DelegatedAuthority['findDelegation']>(
    findDelegation ?? (async () => undefined),
  );
  const ucans = vi.fn<DelegatedAuthority['turnUcan']>(
    () => ({ hasSigningKey: () => true }) as Partial<TurnUcan> as TurnUcan,
  );
  const openedRules = vi.fn(async (_owner: string) => {
    const logger = pino({ level: 'silent' });
    const rules = new LiveRules({ load: async () => undefined, watch: () => closedRules, logger });
    await rules.reload();
    return rules;
  });
  const observeTool = vi.fn();
  const authority: Pick<DelegatedAuthority, 'findDelegation' | 'turnUcan'> = {
    findDelegation: delegations,
    turnUcan: ucans,
  };
  const access = { watchUses: () => onUse };
  return {
    ...{ onUse, closedRules, delegations, ucans, openedRules, observeTool },
    deps: {
      authority: authority as DelegatedAuthority,
      access: access as Pick<TurnAccess, 'watchUses'> as TurnAccess,
      rules: { open: openedRules } as Pick<UserRules, 'open'> as UserRules,
      metrics: { observeTool } as Pick<Metrics, 'observeTool'> as Metrics,
      oracle: { name: 'Pythia' } as Pick<OracleIdentity, 'name'> as OracleIdentity,
    },
  };
}

/** A turn to prepare: `prepare` returns what its agent receives. */
async function begin(options: Options = {}) {
  const run = options.run ?? (await startTestRun(test.store)).run;
  const lines: Record<string, unknown>[] = [];
  const logger = pino({ base: null }, { write: (line) => void lines.push(JSON.parse(line)) });
  const models = {
    main: createModel('main', options.main),
    small: createModel('small', options.small),
    large: createModel('large'),
  };
  const listed: Pick<Models, 'get' | 'find'> = {
    get: (role) => (role === 'utility' ? models.small : models.main),
    find: (id) => (id === 'large' ? models.large : undefined),
  };
  const pendingCalls = new PendingClientCalls({ timeoutMs: 60_000 });
  const { deps, ...host } = createHost(options);
  const setup = new TurnSetup({
    ...{ ...deps, store: test.store, models: listed as Models, plugins: options.plugins ?? [] },
    ...{ hooks: new Hooks(logger, 1000), pendingCalls, checksEvents: true, logger },
    settings: { ...SETTINGS, ...options.settings },
  });
  const warnings: [string, string][] = [];
  const events: ReplyPart[] = [];
  const account = new TurnAccount({ check: async () => {}, add: () => {}, settle: async () => {} });
  const request = buildRequest(run, options);
  const emit = (part: ReplyPart) => {
    events.push(part);
    return undefined;
  };
  const session = await test.store.sessions.get(run);
  const live = createActiveRun(run, {
    ...{ request, session, account, progress: options.progress },
    recording: createRecording(test.store.runs),
  });
  const prepare = () => setup.prepare(live, { emit, warn: (...each) => void warnings.push(each) });
  const { recorder } = live;
  return {
    ...{ prepare, live, recorder, request, session, account },
    ...{ ...host, models, warnings, events, lines, pendingCalls, run },
  };
}

function buildRequest(session: SessionKey, options: Options): TurnRequest {
  const { message, ...request } = createTurnRequest(session);
  return { ...request, message: { ...message, ...options.message }, ...options.request };
}

interface Contribution {
  readonly probe?: (turn: TurnContext) => unknown;
  readonly shared?: SharedState;
  readonly middlewares?: readonly Middleware[];
  readonly visibility?: 'always' | 'on-demand';
}

/** A plugin whose tool `probe` does what a test wants. */
function loadPlugin(name: string, contribution: Contribution = {}): LoadedPlugin {
  const { probe = () => 'ok', shared = {}, middlewares = [], visibility } = contribution;
  const plugin = testPlugin(name, {});
  const inputSchema = z.object({});
  const run = (_: object, turn: TurnContext) => probe(turn);
  return {
    ...{ plugin, name, config: {}, services: undefined, shared, middlewares },
    manifest: PluginManifest.parse({ ...plugin.manifest, ...(visibility && { visibility }) }),
    tools: [defineTool({ name: 'probe', description: 'Looks at its turn', inputSchema, run })],
    ...{ subAgents: [], gate: undefined, nestModules: [], openRoutes: [], routes: [] },
  };
}

const PROBE = [callTools(['c1', 'probe', {}]), say('done')] as const;

/** Prepares a turn whose agent calls a tool with the turn's context, and runs it. */
async function probeTurn(probe: (turn: TurnContext) => unknown, options: Options = {}) {
  const plugins = [loadPlugin('shop', { probe })];
  const turn = await begin({ plugins, main: [...PROBE], ...options });
  const ended = await runToEnd(await turn.prepare());
  return { ...turn, ...ended, calls: listFinishedCalls(ended.parts) };
}

/** What a model sees of a conversation. */
const listTexts = (messages: readonly { role: string; content?: unknown; text?: unknown }[]) =>
  messages.map(({ role, content, text }) => `${role}: ${content ?? text}`);

describe('TurnSetup.prepare: the conversation', () => {
  it('has the messages of the branch up to the one to answer, without partial answers of failed turns', async () => {
    const session = await openTestSession(test.store);
    const { runs } = test.store;
    const ask = async (content: string) =>
      startTestRun(test.store, { ...session, message: { content } });
    const message = (content: string, status: 'failed' | 'interrupted') => ({
      content,
      isComplete: false,
      error: { status, code: 'x', message: 'x' },
    });
    await finishTestRun(runs, (await ask('one')).key, { content: 'first' });
    const failed = { status: 'failed', message: message('half', 'failed') } as const;
    await finishTestRun(runs, (await ask('two')).key, failed);
    const stopped = { status: 'interrupted', message: message('rest', 'interrupted') } as const;
    await finishTestRun(runs, (await ask('three')).key, stopped);
    const { run } = await ask('four');
    await ask('later');
    const { prepare, warnings } = await begin({ run });
    // Notes about interrupted answers are left out.
    const texts = listTexts((await prepare()).messages).map((text) => text.replace(/\n.*/s, ''));
    expect(texts).toEqual([
      ...['user: one', 'assistant: first', 'user: two', 'user: three', 'assistant: rest'],
      'user: four',
    ]);
    expect(warnings).toEqual([]);
  });

  it('does not repeat what an earlier attempt of the turn has said: its steps contain it', async () => {
    const { key } = await startTestRun(test.store);
    const interruptId = randomUUID();
    await test.store.runs.pause({
      ...{ ...key, interrupts: [createQuestion(interruptId)], limit: 10 },
      ...{ steps: [], request: {} },
      end: { message: { content: 'half', isComplete: false } },
    });
    const end = { owner: key.owner, interruptId, status: 'answered', value: 1 } as const;
    const result = await test.store.runs.endInterrupt(end);
    if (result.state !== 'continued') throw new Error(result.state);
    const { prepare } = await begin({ run: result.run });
    expect(listTexts((await prepare()).messages)).toEqual(['user: hi']);
  });

  it('is read again after a short outage of the store', async () => {
    const away = Object.assign(new Error('the server is starting'), { code: '57P03' });
    const { prepare, openedRules } = await begin();
    vi.spyOn(test.store.messages, 'recent').mockRejectedValueOnce(away);
    openedRules.mockRejectedValueOnce(away);
    expect(listTexts((await prepare()).messages)).toEqual(['user: hi']);
  });

  it('leaves out the oldest messages of a very long one, with a warning', async () => {
    const session = await openTestSession(test.store);
    const content = 'x'.repeat(100);
    for (const _ of [1, 2, 3]) {
      const { key } = await startTestRun(test.store, { ...session, message: { content } });
      await finishTestRun(test.store.runs, key, { content });
    }
    const { run } = await startTestRun(test.store, session);
    const short = await begin({ run, settings: { contextTokens: 1 } });
    expect((await short.prepare()).messages.length).toBeLessThan(7);
    expect(short.warnings).toEqual([['history_shortened', expect.any(String)]]);
    // 16 bytes per token are read, and each message takes a kilobyte beside its text.
    const whole = await begin({ run, settings: { contextTokens: 1000 } });
    expect((await whole.prepare()).messages).toHaveLength(7);
    expect(whole.warnings).toEqual([]);
  });

  it('begins with the history that the client keeps itself', async () => {
    const call = { id: 'e1', name: 'look', args: {}, status: 'done', output: 'seen' } as const;
    const history = [
      { role: 'user', text: 'before' },
      { role: 'assistant', text: 'yes', toolCalls: [call] },
      { role: 'assistant', text: 'plain' },
    ] as const;
    const request = { surface: { plugin: 'shop', history } };
    const { models, calls, thrown } = await probeTurn(
      ({ history }) => history.map(({ id, type, parts }) => [id, type, parts?.length]),
      { request },
    );
    expect(thrown).toBeUndefined();
    expect(JSON.parse(calls[0]?.output ?? '')).toEqual([
      ['earlier-0', 'human', null],
      ['earlier-1', 'ai', 2],
      ['earlier-2', 'ai', null],
    ]);
    const seen = models.main.calls[0]?.messages ?? [];
    expect(seen.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool',
      'assistant',
      'user',
    ]);
    const [first, , , last] = listTexts(seen);
    expect([first, last]).toEqual(['user: before', 'assistant: plain']);
  });

  it('has a note with the time zone of the user and the services that are not available', async () => {
    const away = (turn: TurnContext) => turn.degrade('maps', 'ways');
    const plugins = [loadPlugin('shop', { shared: { away } })];
    const request = { user: { timezone: 'Africa/Nairobi' } };
    const { prepare } = await begin({ plugins, request });
    const [asked] = (await prepare()).messages;
    const note = asked?.role === 'user' ? asked.note : '';
    expect(note).toContain('+03:00');
    expect(note).toContain('[Not available now: maps: ways]');
  });
});

describe('TurnSetup.prepare: the request', () => {
  it('has the limits, the account and the signal of the turn', async () => {
    const { prepare, account, live } = await begin({ settings: { maxSteps: 3 } });
    const request = await prepare();
    expect([request.limits.steps.limit, request.limits.contextTokens]).toEqual([3, 10_000]);
    expect(request.meter).toBe(account);
    expect(request.signal).toBe(live.signal);
    expect([request.journal?.earlier, request.journal?.answers.size]).toEqual([[], 0]);
    expect(request.hooks).toBeUndefined();
    // Summaries are shared by turns.
    expect((await prepare()).summaries).toBe(request.summaries);
  });

  it('continues with the steps and answers of earlier attempts', async () => {
    const message = { role: 'assistant', text: 'earlier' } as const;
    const steps = [{ type: 'model', path: '', message }] as const;
    const answers = new Map([['c1', { status: 'answered', value: 1 } as const]]);
    const { prepare } = await begin({ progress: { steps, answers } });
    const { journal } = await prepare();
    expect([journal?.earlier, journal?.answers]).toEqual([steps, answers]);
  });

  it.each([
    [undefined, 'main'],
    ['large', 'large'],
    ['unknown', 'main'],
  ])('for the model %s uses the model %s, and the small one for summaries', async (model, used) => {
    const schema = { type: 'object' };
    const message = { model, reasoningEffort: 'high', responseSchema: schema } as const;
    const { prepare } = await begin({ message });
    const request = await prepare();
    expect([request.model.id, request.smallModel.id]).toEqual([used, 'small']);
    expect([request.reasoning, request.responseSchema]).toEqual(['high', schema]);
  });

  it('has a prompt with the oracle, its operator, the client and what the user prefers', async () => {
    const shared = { userPreferences: { language: 'Swahili' } };
    const { prepare } = await begin({
      plugins: [loadPlugin('shop', { shared })],
      settings: { instructions: 'Sell nothing.' },
      request: { surface: { plugin: 'other', instructions: 'Be brief.' } },
    });
    const { system, tools } = await prepare();
    for (const text of ['Pythia', 'The plugin shop', 'Sell nothing.', 'Be brief.', 'Swahili'])
      expect(system).toContain(text);
    expect(tools().map(({ name }) => name)).toEqual(['probe']);
  });

  it('keeps loaded capabilities in the session, apart from the state of plugins', async () => {
    const plugins = [loadPlugin('shop', { visibility: 'on-demand' })];
    const load = [callTools(['c1', 'load_capability', { names: ['shop'] }]), say('done')];
    const first = await begin({ plugins, main: load });
    await runToEnd(await first.prepare());
    const { owner, sessionId } = first.run;
    const states = test.store.sessionState.ofTurn({ owner, sessionId });
    expect(await states.of('(host)').get('capabilities')).toEqual(['shop']);
    const next = await begin({ plugins, run: first.run });
    expect((await next.prepare()).tools().map(({ name }) => name)).toContain('probe');
  });

  it('calls the model through middlewares, as the main agent', async () => {
    const wrapModel = vi.fn<NonNullable<Middleware['wrapModel']>>((request, next) => next(request));
    const middlewares = [{ name: 'watch', wrapModel }];
    const { prepare } = await begin({
      plugins: [loadPlugin('shop', { middlewares })],
      main: [say('hello')],
    });
    const { thrown } = await runToEnd(await prepare());
    expect(thrown).toBeUndefined();
    expect(wrapModel.mock.calls[0]?.[0]).toMatchObject({ agent: 'main', model: { id: 'main' } });
  });

  it('fails the turn when its models together have written too much', async () => {
    const settings = { maxCharacters: 600 };
    const { live, thrown } = await probeTurn(
      ({ llm }) => llm.get('utility').generate({ prompt: 'Why?' }),
      { settings, small: [say('x'.repeat(200))] },
    );
    expect(thrown).toMatchObject({ code: 'turn_too_long' });
    await expect.poll(() => live.error?.code).toBe('turn_too_long');
  });
});

describe('TurnSetup.prepare: what plugins can do', () => {
  it('shortens their warnings, and makes them text', async () => {
    const { warnings } = await probeTurn(({ warn }) => {
      warn('c'.repeat(1500), 'm'.repeat(1500));
      warn(7 as never, null as never);
    });
    expect(warnings).toEqual([
      ['c'.repeat(1000), 'm'.repeat(1000)],
      ['7', 'null'],
    ]);
  });

  it('sends their valid events with the turn, and drops others', async () => {
    const { events, run, lines } = await probeTurn(({ emit, logger }) => {
      emit.router({ step: 'a' });
      emit.router({ step: 7 as never });
      logger.info({}, 'looked');
    });
    const { sessionId, requestId } = run;
    const data = { step: 'a', sessionId, requestId };
    expect(events).toEqual([{ event: 'router_update', data }]);
    expect(lines).toMatchObject([{ event: 'router_update' }, { plugin: 'shop', msg: 'looked' }]);
  });

  it('sends their calls to the pages of the session', async () => {
    const probe = ({ client, signal }: TurnContext) => {
      const call = { toolCallId: 'p1', toolName: 'scroll', args: {}, signal };
      return client.call({ event: 'action_call', ...call });
    };
    const turn = await begin({ main: [...PROBE], plugins: [loadPlugin('shop', { probe })] });
    const ended = runToEnd(await turn.prepare());
    const answer = { event: 'action_call', toolCallId: 'p1', result: { at: 2 } } as const;
    await expect.poll(() => turn.pendingCalls.answer(turn.run, answer)).toBe(true);
    const [call] = listFinishedCalls((await ended).parts);
    expect(call).toMatchObject({ status: 'done', output: expect.stringContaining('"at":2') });
    expect(turn.live.log.since(0).map(({ event }) => event)).toContain('action_call');
  });

  it('signs for the caller in the name of the plugin, and watches what it used', async () => {
    const { ucans, request, onUse, calls } = await probeTurn(({ ucan }) => ucan.hasSigningKey());
    expect(ucans).toHaveBeenCalledWith({ caller: request.caller, plugin: 'shop', onUse });
    expect(calls[0]).toMatchObject({ status: 'done', output: 'true' });
  });

  it('records and measures the calls of tools', async () => {
    const turn = await begin({ plugins: [loadPlugin('shop')], main: [...PROBE] });
    const recordCall = vi.spyOn(turn.recorder, 'recordCall');
    await runToEnd(await turn.prepare());
    expect(recordCall.mock.calls).toEqual([[{ callId: 'c1', tool: 'probe', outcome: 'done' }]]);
    expect(turn.observeTool.mock.calls).toEqual([['probe', 'done', expect.any(Number)]]);
  });

  it('asks for the approval of tools for which the operator requires it', async () => {
    const { thrown } = await probeTurn(() => 'ran', { settings: { approvals: ['probe'] } });
    expect(thrown).toBeInstanceOf(PausedError);
  });

  it('follows the rules of the user until the turn has ended', async () => {
    const { prepare, openedRules, closedRules, live, run } = await begin();
    await prepare();
    expect(openedRules.mock.calls).toEqual([[run.owner]]);
    expect(closedRules).not.toHaveBeenCalled();
    live.settle({ status: 'finished', messageId: undefined, text: '', warnings: [] });
    await expect.poll(() => closedRules).toHaveBeenCalledTimes(1);
  });
});

describe('TurnSetup.prepare: the delegation of the user', () => {
  const delegate = (expiration: number) => async () => {
    const found: Pick<NonNullable<Delegation>, 'cid' | 'expiration'> = { cid: 'cid', expiration };
    return found as Delegation;
  };
  const read = async (findDelegation?: Options['findDelegation']) => {
    const seen: unknown[] = [];
    const turn = await probeTurn(({ user }) => seen.push(user.delegation), { findDelegation });
    expect(turn.delegations.mock.calls).toEqual([[turn.request.caller]]);
    return { seen, lines: turn.lines, run: turn.run };
  };

  it('is known to plugins, with its expiration if it has one', async () => {
    expect((await read(delegate(7))).seen).toEqual([{ cid: 'cid', expiration: 7 }]);
    expect((await read(delegate(Number.POSITIVE_INFINITY))).seen).toEqual([{ cid: 'cid' }]);
    expect((await read()).seen).toEqual([undefined]);
  });

  it('is missing if it cannot be read; the turn continues', async () => {
    const { seen, lines, run } = await read(async () => {
      throw new Error('away');
    });
    expect(seen).toEqual([undefined]);
    expect(lines).toMatchObject([{ level: 40, did: run.owner }]);
  });

  it('is not read if no plugin can use it', async () => {
    const { prepare, delegations } = await begin();
    await prepare();
    expect(delegations).not.toHaveBeenCalled();
  });
});
