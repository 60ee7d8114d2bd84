import { randomUUID } from 'node:crypto';
import { type Llms, type SharedState, sharedKey, type TurnContext } from '@sibyl/plugin-kit';
import {
  type ClientCalls,
  type LoadedPlugin,
  PluginManifest,
  type TurnUcan,
} from '@sibyl/plugin-kit/host';
import { pino } from 'pino';
import { describe, expect, it, vi } from 'vitest';
import { testPlugin } from '../../../test/support/plugin.js';
import { createRecorder } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import { MemoryEventBus } from '../../bus/event-bus.js';
import { PendingClientCalls } from '../../bus/pending-client-calls.js';
import type { Message } from '../../store/message-store.js';
import type { Session } from '../../store/session-store.js';
import { buildDoneFrame, RunLog } from '../run/run-log.js';
import type { TurnRequest } from '../turn-request.js';
import { Hooks } from './hooks.js';
import { TurnReach } from './tool-policy.js';
import { buildTurnFacts, createClientCalls, createTurnEmit, TurnContexts } from './turn-context.js';

const test = useStore('sqlite');

/** A running run, the events its session's sockets receive, and the `emit` of a plugin. */
async function begin(checksEvents: boolean) {
  const { runs } = test.store;
  const { run } = await startTestRun(test.store);
  const [events, log] = [new MemoryEventBus(), new RunLog()];
  const heard: unknown[] = [];
  events.subscribe(run, ({ payload }) => heard.push(payload));
  const lines: { msg: string }[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const recorder = createRecorder(run, { log, runs, events, logger });
  const emit = createTurnEmit({ run, recorder, logger, checksEvents });
  const place = { sessionId: run.sessionId, requestId: run.requestId };
  const written = () => log.since(0).map(({ data }) => JSON.parse(data));
  return { run, recorder, emit, heard, written, lines, place };
}

const cyclic: Record<string, unknown> = {};
cyclic.self = cyclic;

it('createTurnEmit adds the session, and a plugin cannot emit into another one', async () => {
  const { emit, heard, written, place } = await begin(true);
  const forged = { step: 'a', sessionId: 'another', requestId: 'another' };
  emit.router(forged);
  expect(heard).toEqual([{ step: 'a', ...place }]);
  expect(written()).toEqual(heard);
});

it('drops what does not fit while plugins are written, and says what was wrong', async () => {
  const { emit, heard, lines, place } = await begin(true);
  emit.router({ step: 7 as unknown as string });
  expect(heard).toEqual([]);
  expect(lines).toMatchObject([
    { ...place, event: 'router_update', faults: [expect.stringMatching(/^step/)] },
  ]);
});

it('lets pass what does not fit while they are served, and still never throws', async () => {
  const { emit, heard, lines, place } = await begin(false);
  emit.router({ step: 7 as unknown as string });
  expect(heard).toHaveLength(1);
  emit.toolCall({ eventId: 'e', toolName: 't', args: cyclic, status: 'done' });
  expect(heard).toHaveLength(1);
  expect(lines).toMatchObject([{ ...place, event: 'tool_call', err: { type: 'TypeError' } }]);
});

it('says nothing more once the turn is ending', async () => {
  const { run, recorder, emit, heard, written } = await begin(true);
  const messageId = randomUUID();
  const message = { id: messageId, content: 'Hello', isComplete: true };
  const done = buildDoneFrame({ runId: run.runId, messageId, status: 'finished', text: 'Hello' });
  const ending = recorder.end({ status: 'finished', message }, done);
  emit.router({ step: 'too late' });
  await ending;
  emit.router({ step: 'far too late' });
  expect(heard).toEqual([]);
  expect(written()).toEqual([done.data]);
});

describe('createClientCalls', () => {
  const ANSWER = { result: { ok: true }, toolCallId: 'c1' };

  /** The `client` of a turn, and the calls that wait for a page. */
  async function connect() {
    const { run, recorder, heard } = await begin(true);
    const pendingCalls = new PendingClientCalls({ timeoutMs: 60_000 });
    const { signal } = new AbortController();
    const client = createClientCalls({ run, recorder, pendingCalls });
    const call = (event: 'action_call' | 'browser_tool_call') =>
      client.call({ event, toolCallId: 'c1', toolName: 'scroll', args: { by: 2 }, signal });
    const place = { sessionId: run.sessionId, requestId: run.requestId };
    const sent = { ...place, toolCallId: 'c1', toolName: 'scroll', args: { by: 2 } };
    return { run, recorder, heard, pendingCalls, call, sent };
  }

  it('sends a call to the pages of the session, and returns the answer of one', async () => {
    const { run, heard, pendingCalls, call, sent } = await connect();
    const result = call('browser_tool_call');
    expect(heard).toEqual([sent]);
    const answer = { ...ANSWER, event: 'browser_tool_call' } as const;
    expect(pendingCalls.answer({ ...run, owner: 'did:key:zOther' }, answer)).toBe(false);
    expect(pendingCalls.answer(run, answer)).toBe(true);
    expect(await result).toEqual({ ok: true });
  });

  it('sends an action as one that is running', async () => {
    const { run, heard, pendingCalls, call, sent } = await connect();
    const result = call('action_call');
    expect(heard).toEqual([{ ...sent, status: 'isRunning' }]);
    pendingCalls.answer(run, { ...ANSWER, event: 'action_call' });
    expect(await result).toEqual({ ok: true });
  });

  it('sends nothing once the turn is ending', async () => {
    const { run, recorder, heard, pendingCalls, call } = await connect();
    const done = buildDoneFrame({ runId: run.runId, messageId: 'm', status: 'finished', text: '' });
    const message = { content: '', isComplete: true };
    const ending = recorder.end({ status: 'finished', message }, done);
    await expect(call('action_call')).rejects.toThrow('scroll was not run: the turn has ended.');
    await ending;
    expect([heard, pendingCalls.list(run)]).toEqual([[], []]);
  });
});

const loadPlugin = (name: string, shared: SharedState = {}): LoadedPlugin => {
  const plugin = testPlugin(name, {});
  return {
    plugin,
    name,
    manifest: PluginManifest.parse(plugin.manifest),
    config: { KEY: `config of ${name}` },
    services: { name },
    shared,
    tools: [],
    subAgents: [],
    middlewares: [],
    gate: undefined,
    nestModules: [],
    openRoutes: [],
    routes: [],
  };
};

const buildRequest = ({
  message,
  ...more
}: Partial<Omit<TurnRequest, 'message'>> & {
  readonly message?: Partial<TurnRequest['message']>;
} = {}): TurnRequest => ({
  caller: {
    did: 'did:key:zAlice',
    expiration: Number.POSITIVE_INFINITY,
    presentedDelegation: undefined,
    loginCids: [],
  },
  sessionId: 's1',
  requestId: 'r1',
  message: { message: 'hi', multitask: 'enqueue', ...message },
  user: {},
  client: 'api',
  ...more,
});

const createMessage = (id: string, more: Partial<Message> = {}): Message => ({
  ...{ id, owner: 'did:key:zAlice', sessionId: 's1', requestId: 'r1', type: 'human', turn: 1 },
  ...{ seq: 1, branch: 0, content: id, isComplete: true, createdAt: 0 },
  ...more,
});

const SESSION: Session = {
  ...{ sessionId: 's1', owner: 'did:key:zAlice', oracleDid: 'did:key:zOracle', title: 'Untitled' },
  ...{ roomId: 'room', createdAt: 0, lastUpdatedAt: 0, branch: 0, isBranched: false },
};

const facts = (request = buildRequest()) =>
  buildTurnFacts({
    request,
    session: SESSION,
    messages: [createMessage('m1'), createMessage('m2', { type: 'ai' }), createMessage('m3')],
    delegation: undefined,
  });

const SHARED_NAMES = ['constant', 'computed', 'derived', 'broken'];

const readShared = ({ shared }: TurnContext) =>
  Object.fromEntries(
    SHARED_NAMES.flatMap((name) => {
      const value = shared.get(sharedKey<unknown>(name));
      return value === undefined ? [] : [[name, value]];
    }),
  );

/** Opens the contexts of a turn; `abort` ends it. */
function openContexts(plugins: readonly LoadedPlugin[], request = buildRequest()) {
  const lines: { plugin?: string; hook?: string }[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const turn = new AbortController();
  const ucans = new Map(plugins.map(({ name }) => [name, {} as TurnUcan]));
  const sessionState = test.store.sessionState.ofTurn({ owner: 'did:key:zAlice', sessionId: 's1' });
  const warn = vi.fn();
  const deps = {
    request,
    facts: facts(request),
    store: test.store,
    sessionState,
    createUcan: (plugin: string) => ucans.get(plugin) as TurnUcan,
    llm: {} as Llms,
    emit: { router: () => {} } as Pick<TurnContext['emit'], 'router'> as TurnContext['emit'],
    client: {} as ClientCalls,
    warn,
    hooks: new Hooks(logger, 1000),
    reach: new TurnReach({}),
    loggerFor: (plugin: string) => logger.child({ of: plugin }),
    signal: turn.signal,
  };
  const opened = TurnContexts.open(deps, plugins);
  return { opened, deps, ucans, lines, abort: (reason: Error) => turn.abort(reason) };
}

describe('TurnContexts.open', () => {
  it('collects what plugins share in their order; each sees what earlier ones share', async () => {
    const seen: unknown[] = [];
    const first = loadPlugin('first', {
      constant: 42,
      computed: async (turn: TurnContext) => {
        seen.push(readShared(turn));
        return `for ${turn.user.did}`;
      },
    });
    const second = loadPlugin('second', {
      derived: (turn: TurnContext) => {
        seen.push(readShared(turn));
        return [turn.config, turn.services];
      },
    });
    const contexts = await openContexts([first, loadPlugin('none'), second]).opened;
    const shared = { constant: 42, computed: 'for did:key:zAlice' };
    expect(seen).toEqual([{}, shared]);
    const derived = [{ KEY: 'config of second' }, { name: 'second' }];
    // All plugins see everything afterwards.
    expect(readShared(contexts.of(first))).toEqual({ ...shared, derived });
    expect(readShared(contexts.of(second))).toEqual({ ...shared, derived });
  });

  it('leaves out a value whose function fails, and says which', async () => {
    const plugin = loadPlugin('first', {
      constant: 42,
      broken: () => {
        throw new Error('no luck');
      },
      computed: () => 'fine',
    });
    const { opened, lines } = openContexts([plugin]);
    const contexts = await opened;
    expect(readShared(contexts.of(plugin))).toEqual({ constant: 42, computed: 'fine' });
    expect(lines).toMatchObject([{ plugin: 'first', hook: 'getSharedState: broken' }]);
  });

  it('computes nothing of a plugin that the turn does not concern, and lists the others in order', async () => {
    const computed = vi.fn(() => 'value');
    const idle = { ...loadPlugin('idle', { constant: 42, computed }), when: { clients: ['chat'] } };
    const [first, last] = [
      loadPlugin('first'),
      { ...loadPlugin('last'), when: { clients: ['api'] } },
    ];
    const contexts = await openContexts([first, idle, last]).opened;
    expect([...contexts.concerned]).toEqual([first, last]);
    expect(computed).not.toHaveBeenCalled();
    expect(readShared(contexts.of(first))).toEqual({ constant: 42 });
  });

  it('asks a plugin if it cannot be known whether the turn concerns it', async () => {
    const plugin = { ...loadPlugin('first'), when: { sessionState: ['files'] } };
    const { deps } = openContexts([]);
    const sessionState = {
      of: () => ({ get: () => Promise.reject(new Error('away')), set: async () => undefined }),
    };
    const contexts = await TurnContexts.open({ ...deps, sessionState }, [plugin]);
    expect(contexts.concerned.has(plugin)).toBe(true);
  });

  it('ends with the turn, and so do the signals of the functions', async () => {
    const signals: AbortSignal[] = [];
    const plugin = loadPlugin('first', {
      computed: ({ signal }: TurnContext) => {
        signals.push(signal);
        return new Promise(() => {});
      },
    });
    const { opened, abort, lines } = openContexts([plugin]);
    abort(new Error('aborted'));
    await expect(opened).rejects.toThrow('aborted');
    expect([signals[0]?.aborted, lines]).toEqual([true, []]);
  });
});

describe('TurnContexts.of', () => {
  it('gives each plugin its own configuration, services and rights, and one context per turn', async () => {
    const [first, second] = [loadPlugin('first'), loadPlugin('second')];
    const { opened, deps, ucans } = openContexts([first, second]);
    const contexts = await opened;
    const context = contexts.of(first);
    expect(contexts.of(first)).toBe(context);
    expect(contexts.of(second)).not.toBe(context);
    const { llm, emit, client, warn, signal } = deps;
    expect(context).toMatchObject({
      ...deps.facts,
      config: { KEY: 'config of first' },
      services: { name: 'first' },
      toolCallId: '',
      state: { userPreferences: {}, metadata: {} },
    });
    const own = { llm, emit, client, warn, signal, ucan: ucans.get('first') };
    for (const [name, value] of Object.entries(own))
      expect(context[name as keyof TurnContext]).toBe(value);
    expect(contexts.of(second).ucan).toBe(ucans.get('second'));
    expect((context.logger as typeof context.logger & pino.Logger).bindings()).toEqual({
      of: 'first',
    });
  });

  it('keeps the stored data of plugins apart', async () => {
    const [first, second] = [loadPlugin('first'), loadPlugin('second')];
    const contexts = await openContexts([first, second]).opened;
    const [mine, theirs] = [contexts.of(first), contexts.of(second)];
    await mine.secrets.set('token', 'hidden');
    const data = new TextEncoder().encode('file');
    const blob = await mine.blobs.put({ mediaType: 'text/plain', data });
    expect(await mine.secrets.get('token')).toBe('hidden');
    expect(await theirs.secrets.get('token')).toBeUndefined();
    expect((await mine.blobs.get(blob))?.mediaType).toBe('text/plain');
    expect(await theirs.blobs.get(blob)).toBeUndefined();
  });

  it('collects the services that plugins report as unavailable, as text', async () => {
    const plugin = loadPlugin('first');
    const contexts = await openContexts([plugin]).opened;
    const { degrade } = contexts.of(plugin);
    degrade('maps', 'ways');
    degrade(7 as never, null as never);
    expect(contexts.degraded).toEqual([
      { name: 'maps', missing: 'ways' },
      { name: '7', missing: 'null' },
    ]);
  });
});

describe('TurnContexts.state', () => {
  const stateFor = async (metadata?: Record<string, unknown>, shared: SharedState = {}) => {
    const request = buildRequest({ message: { metadata } as Partial<TurnRequest['message']> });
    const contexts = await openContexts([loadPlugin('first', shared)], request).opened;
    return contexts.state;
  };

  it('has the identifiers that the client sent as text, shortened', async () => {
    const metadata = { editorRoomId: 'e', spaceId: 's', currentEntityDid: 'd'.repeat(600) };
    expect(await stateFor(metadata)).toEqual({
      userPreferences: {},
      editorRoomId: 'e',
      spaceId: 's',
      currentEntityDid: 'd'.repeat(512),
      metadata,
    });
  });

  it('leaves out what is empty or not text', async () => {
    const metadata = { editorRoomId: '', spaceId: 7, other: 'x' };
    expect(await stateFor(metadata)).toEqual({ userPreferences: {}, metadata });
    expect(await stateFor()).toEqual({ userPreferences: {}, metadata: {} });
  });

  it('has the preferences that a plugin shares, if they are valid', async () => {
    const valid = await stateFor({}, { userPreferences: { language: 'Swahili' } });
    expect(valid.userPreferences).toEqual({ language: 'Swahili' });
    const invalid = await stateFor({}, { userPreferences: { language: 7 } });
    expect(invalid.userPreferences).toEqual({});
    expect(Object.isFrozen(valid)).toBe(true);
  });

  it('is the same object for all plugins, until another one shares something', async () => {
    const early: unknown[] = [];
    const first = loadPlugin('first', { computed: ({ state }: TurnContext) => early.push(state) });
    const second = loadPlugin('second', { userPreferences: { language: 'Swahili' } });
    const contexts = await openContexts([first, second]).opened;
    expect(early).toEqual([{ userPreferences: {}, metadata: {} }]);
    expect(contexts.of(first).state.userPreferences).toEqual({ language: 'Swahili' });
    expect(contexts.of(second).state).toBe(contexts.of(first).state);
  });
});

describe('buildTurnFacts', () => {
  it('describes the user, the session, the history and the request, and none can be changed', () => {
    const { user, session, history, request } = facts();
    expect(user).toEqual({
      did: 'did:key:zAlice',
      timezone: 'UTC',
      currentTime: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    });
    expect(session).toEqual({ id: 's1', requestId: 'r1', roomId: 'room', client: 'api' });
    // Without the message to answer.
    expect(history.map(({ id, type }) => [id, type])).toEqual([
      ['m1', 'human'],
      ['m2', 'ai'],
    ]);
    expect(request).toEqual({ attachments: [], mcpInvocations: {} });
    for (const fact of [user, session, history, request]) expect(Object.isFrozen(fact)).toBe(true);
  });

  it.each([
    [{ matrixHomeServer: 'home' }, { homeServer: 'home' }],
    [{ matrixAccessToken: 'token' }, { accessToken: 'token' }],
    [
      { matrixHomeServer: 'home', matrixAccessToken: 'token' },
      { homeServer: 'home', accessToken: 'token' },
    ],
  ])('has only the fields of Matrix that the transport sent: %j', (user, matrix) => {
    expect(facts(buildRequest({ user })).user.matrix).toEqual(matrix);
  });

  it('has the time zone and the delegation of the user', () => {
    const request = buildRequest({ user: { timezone: 'Africa/Nairobi' } });
    const delegation = { cid: 'cid', expiration: 7 };
    const { user, history } = buildTurnFacts({
      ...{ request, session: SESSION, messages: [], delegation },
    });
    expect(user).toMatchObject({ timezone: 'Africa/Nairobi', delegation });
    expect(history).toEqual([]);
  });

  it('has the tools, actions, attachments and invocations of the message', () => {
    const message = {
      tools: [{ name: 'scroll', schema: {}, description: 'Scrolls' }],
      agActions: [],
      attachments: [],
      mcpInvocations: { 'did:web:mcp': 'invocation' },
    };
    expect(facts(buildRequest({ message })).request).toEqual(message);
  });
});
