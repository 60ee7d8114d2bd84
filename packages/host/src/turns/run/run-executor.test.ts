import { SpanStatusCode } from '@opentelemetry/api';
import { type ReadableSpan, TracerProvider } from '@opentelemetry/sdk-trace';
import { OracleError } from '@sibyl/protocol';
import { pino } from 'pino';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { requestTo, tool } from '../../../test/support/agent/agent-requests.js';
import { callTools, ScriptedModel, say } from '../../../test/support/agent/scripted-model.js';
import { createActiveRun, createRecording } from '../../../test/support/test-active-run.js';
import { useStore } from '../../../test/support/test-database.js';
import { startTestRun } from '../../../test/support/test-runs.js';
import type { AgentRequest, AgentTool } from '../../agent/agent.js';
import { PausedError } from '../../agent/steps.js';
import { endOfRun, MemoryEventBus, type ServerEvent, toPosition } from '../../bus/event-bus.js';
import { Metrics } from '../../observability/metrics.js';
import { findScope, type Scope, type SpanExporter } from '../../observability/spans.js';
import type { Run } from '../../store/runs/run.js';
import { UNTITLED } from '../../store/session-store.js';
import { TurnAccount } from '../start/gates.js';
import type { TurnRequest } from '../turn-request.js';
import { ActiveRun } from './active-run.js';
import { RunExecutor } from './run-executor.js';
import { RunRecorder } from './run-recorder.js';
import { Titles } from './titles.js';
import { TurnSetup } from './turn-setup.js';

const test = useStore('sqlite');
const silent = pino({ level: 'silent' });
afterEach(() => {
  vi.restoreAllMocks();
  vi.useRealTimers();
});

type ExecutorDeps = ConstructorParameters<typeof RunExecutor>[0];
type Prepare = TurnSetup['prepare'];

interface TurnOptions extends Partial<Pick<ExecutorDeps, 'grants' | 'exporter' | 'usage'>> {
  readonly model?: ScriptedModel;
  readonly tools?: readonly AgentTool[];
  /** By default a request to `model`. */
  readonly prepare?: (...args: Parameters<Prepare>) => AgentRequest | Promise<AgentRequest>;
  readonly request?: Partial<TurnRequest>;
  readonly run?: Partial<Run>;
  /** Of the session as the turn knows it. */
  readonly title?: string;
  readonly progress?: ActiveRun['progress'];
  readonly limits?: Partial<ExecutorDeps['limits']>;
}

/** A turn in a new session of a real store; its model follows a script. */
async function openTurn(options: TurnOptions = {}) {
  const started = await startTestRun(test.store);
  const run = { ...started.run, ...options.run };
  const events = new MemoryEventBus();
  const published: ServerEvent[] = [];
  events.subscribe(run, (event) => published.push(event));
  const log: Record<string, unknown>[] = [];
  const metrics = new Metrics();
  const naming = new ScriptedModel(say('Soil basics'));
  const logger = pino({ base: null }, { write: (line) => void log.push(JSON.parse(line)) });
  const { settled, live } = await createLive(run, events, options);
  const executor = createExecutor({ events, logger, metrics }, naming, options);
  const finishing = vi.spyOn(test.store.runs, 'finish');
  return {
    ...{ live, run, settled, published, log, naming, account: live.account },
    start: () => executor.execute(live),
    findRun: () => test.store.runs.find(started.key),
    findTitle: async () => (await test.store.sessions.get(started.session)).title,
    frames: (name: string) =>
      live.log
        .since(0)
        .filter(({ event }) => event === name)
        .map(({ data }) => JSON.parse(data)),
    findTrace: () => finishing.mock.calls.at(-1)?.[0].end.trace,
    /** The samples of a metric: their labels and values. */
    readMetric: async (name: string) =>
      (await metrics.print())
        .split('\n')
        .filter((line) => line.startsWith(`${name}{`))
        .map((line) => line.slice(name.length)),
  };
}

async function createLive(
  run: Run,
  events: MemoryEventBus,
  { title, progress, ...options }: TurnOptions,
) {
  const { owner, sessionId, requestId } = run;
  const found = await test.store.sessions.get({ owner, sessionId });
  const session = { ...found, ...(title && { title }) };
  const settled: (readonly unknown[])[] = [];
  const account = new TurnAccount({
    check: async () => undefined,
    add: () => undefined,
    settle: async (used) => void settled.push(used),
  });
  const request: TurnRequest = {
    caller: { did: owner, expiration: 10, presentedDelegation: undefined },
    message: { message: 'What is soil?', multitask: 'enqueue' },
    ...{ sessionId, requestId, user: {}, client: 'api' },
    ...options.request,
  };
  const recording = createRecording(test.store.runs, { events });
  const live = createActiveRun(run, { recording, request, session, account, progress });
  return { live, settled };
}

function createExecutor(
  deps: Pick<ExecutorDeps, 'events' | 'logger' | 'metrics'>,
  naming: ScriptedModel,
  { grants = { hold: async () => () => {} }, ...options }: TurnOptions,
): RunExecutor {
  const { sessions, usage } = test.store;
  const { model = new ScriptedModel(say('Hello.')), tools = [] } = options;
  const ask: NonNullable<TurnOptions['prepare']> = ({ signal, account, recorder }) => {
    const journal = recorder.openJournal([], new Map());
    return requestTo(model, { signal, meter: account, journal, tools });
  };
  const prepare: Prepare = async (...args) => (options.prepare ?? ask)(...args);
  const setup: TurnSetup = Object.assign(Object.create(TurnSetup.prototype), { prepare });
  return new RunExecutor({
    ...deps,
    setup,
    grants,
    titles: new Titles({ sessions, changes: { publish: () => {} }, model: naming, logger: silent }),
    ...{ hostId: 'host-1', agentName: 'Sibyl', mainModel: 'vendor/main' },
    usage: options.usage ?? usage,
    now: test.store.now,
    exporter: options.exporter,
    limits: { ms: 60_000, paused: 10, storeWaitMs: 1_000, ...options.limits },
  });
}

/** A turn whose agent fails with an error before it says anything. */
const openFailing = (error: unknown, options: TurnOptions = {}) =>
  openTurn({ ...options, prepare: () => Promise.reject(error) });

const never = () => new Promise<never>(() => undefined);

describe('RunExecutor.run', () => {
  it('stores the answer, its cost, its spans and when its text began', async () => {
    const model = new ScriptedModel(callTools(['c1', 'dig', {}]), say('Hello.'));
    const tools = [tool('dig', async () => 'done')];
    const { start, run, findRun, findTrace } = await openTurn({ model, tools });
    const outcome = await start();
    expect(outcome).toMatchObject({ status: 'finished', text: 'Hello.', error: undefined });
    expect(outcome.usage).toMatchObject({ input: 20, output: 10, cached: 4 });
    expect(await findRun()).toMatchObject({
      runId: run.runId,
      status: 'finished',
      usage: { input: 20 },
    });
    const { spans = '', ...trace } = findTrace() ?? {};
    expect(trace).toEqual({ cause: undefined, firstTextMs: expect.any(Number) });
    expect(JSON.parse(spans).spans).toMatchObject([{ kind: 'tool', name: 'dig', parent: 1 }]);
  });

  it('runs the turn in a scope with its ids and its trace', async () => {
    const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
    let scope: Scope | undefined;
    const { start, run } = await openTurn({
      run: { traceparent },
      prepare: ({ signal }) => {
        scope = findScope();
        return requestTo(new ScriptedModel(say('Hello.')), { signal });
      },
    });
    await start();
    const { requestId, runId, sessionId } = run;
    expect(scope).toMatchObject({ requestId, runId, sessionId, traceparent });
  });

  it('continues the answer of earlier attempts', async () => {
    const message = { role: 'assistant', text: 'Soil is' } as const;
    const steps = [{ type: 'model', path: '', message } as const];
    const { start } = await openTurn({ progress: { steps, answers: new Map() } });
    expect((await start()).text).toMatch(/^Soil is\s*Hello\.$/);
  });

  it('begins with the warnings of the request, before those of its setup', async () => {
    const ignored = { code: 'unknown_timezone', message: 'The time zone is unknown.' };
    const { start, frames } = await openTurn({
      request: { warnings: [ignored] },
      prepare: ({ signal }, { warn }) => {
        warn('history_shortened', 'Too old.');
        return requestTo(new ScriptedModel(say('Hello.')), { signal });
      },
    });
    const shortened = { code: 'history_shortened', message: 'Too old.' };
    expect((await start()).warnings).toEqual([ignored, shortened]);
    expect(frames('warning')).toMatchObject([ignored, shortened]);
  });

  it('writes what plugins emit while it is set up', async () => {
    const { start, run, frames } = await openTurn({
      prepare: ({ run, signal }, { emit }) => {
        const { sessionId, requestId } = run;
        const data = { sessionId, requestId, from: 'main', to: 'clerk', step: 'call' } as const;
        emit({ event: 'router_update', data });
        return requestTo(new ScriptedModel(say('Hello.')), { signal });
      },
    });
    await start();
    expect(frames('router_update')).toMatchObject([{ sessionId: run.sessionId, to: 'clerk' }]);
  });

  it('ends when it is canceled, even if its setup does not', async () => {
    const preparing = Promise.withResolvers<void>();
    const prepare = () => {
      preparing.resolve();
      return never();
    };
    const { start, live } = await openTurn({ prepare });
    const ended = start();
    await preparing.promise;
    live.cancel('aborted');
    expect(await ended).toMatchObject({ status: 'aborted' });
  });

  it('throws if its end cannot be stored, and still settles its cost', async () => {
    const { start, live, settled, naming } = await openTurn();
    vi.spyOn(RunRecorder.prototype, 'end').mockRejectedValue(new Error('lost'));
    await expect(start()).rejects.toThrow('lost');
    await expect.poll(() => settled).toHaveLength(1);
    expect([naming.calls, live.signal.aborted]).toEqual([[], false]);
  });
});

describe('the time limit of a turn', () => {
  it('ends it as failed, with what it has said, and names the limit', async () => {
    const model = new ScriptedModel(async function* () {
      yield { type: 'text', text: 'Let me think' };
      await never();
    });
    const { start, frames, findTrace, readMetric } = await openTurn({ model, limits: { ms: 20 } });
    const { status, text, error } = await start();
    expect([status, text]).toEqual(['failed', 'Let me think']);
    expect(error).toMatchObject({ code: 'turn_too_long' });
    expect(error?.message).toContain('stopped after 0.02 seconds');
    const shown = { code: 'turn_too_long', kind: 'server', retryable: false };
    expect(frames('error')).toMatchObject([{ ...shown, error: error?.message }]);
    expect(findTrace()).toMatchObject({ cause: 'turn_too_long' });
    expect(await readMetric('sibyl_turns_total')).toEqual(['{status="failed",kind="server"} 1']);
  });

  it('does not reach beyond its end', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true });
    const { start, live } = await openTurn({ limits: { ms: 60_000 } });
    await start();
    vi.advanceTimersByTime(120_000);
    expect(live.error).toBeUndefined();
  });
});

describe('a turn that was canceled', () => {
  it.each(['aborted', 'interrupted'] as const)(
    'ends as %s, without an error and without a line in the log',
    async (reason) => {
      const { start, live, frames, log, findTrace, readMetric } = await openTurn({
        prepare: (running) => {
          running.cancel(reason);
          throw new Error('broken by the end');
        },
      });
      expect(await start()).toMatchObject({ status: reason, error: undefined });
      expect([frames('error'), log, live.error]).toEqual([[], [], undefined]);
      expect(findTrace()).toMatchObject({ cause: undefined });
      expect(await readMetric('sibyl_turns_total')).toEqual([`{status="${reason}",kind=""} 1`]);
      expect(await readMetric('sibyl_turn_failures_total')).toEqual([]);
    },
  );

  it.each([
    ['the host', 'interrupted', new OracleError('host_stopping'), 'host_stopping'],
    ['a full disk', 'interrupted', fullDisk(), 'disk_full'],
    ['its user', 'interrupted', new OracleError('turn_interrupted'), undefined],
    ['its user, for good', 'aborted', new OracleError('access_revoked'), undefined],
  ] as const)('by %s has the cause that operators see', async (_, reason, error, cause) => {
    const turn = await openTurn({
      prepare: (live) => {
        live.cancel(reason, error);
        return never();
      },
    });
    const outcome = await turn.start();
    expect(outcome).toMatchObject({ status: reason, error });
    expect(turn.frames('error')).toEqual([]);
    expect(turn.findTrace()?.cause).toBe(cause);
    const counted = cause ? [`{cause="${cause}"} 1`] : [];
    expect(await turn.readMetric('sibyl_turn_failures_total')).toEqual(counted);
  });

  it('is not paused, although a tool asks a question', async () => {
    const { start, findRun } = await openTurn({
      prepare: (live) => {
        live.cancel('aborted');
        throw new PausedError([]);
      },
    });
    const { status, pending } = await start();
    expect([status, pending]).toEqual(['aborted', undefined]);
    expect(await findRun()).toMatchObject({ status: 'aborted' });
  });
});

function fullDisk(): OracleError {
  const cause = Object.assign(new Error('no space left'), { code: 'ENOSPC' });
  return new OracleError('store_unavailable', { cause });
}

const asking = tool('buy', async (_, { interrupt }) =>
  interrupt({ kind: 'confirmation', schema: {}, data: { question: 'Buy?' } }),
);
const openAsking = (limits: Partial<ExecutorDeps['limits']> = {}) =>
  openTurn({
    model: new ScriptedModel(callTools(['c1', 'buy', {}])),
    tools: [asking],
    limits,
    request: { idempotencyKey: 'k1' },
  });

describe('a turn whose tool asks a question', () => {
  it('pauses, keeps its request, and is not named', async () => {
    const pausing = vi.spyOn(test.store.runs, 'pause');
    const { start, findRun, findTitle, settled, readMetric, naming } = await openAsking();
    const outcome = await start();
    const pending = [{ id: expect.any(String), kind: 'confirmation' }];
    expect(outcome).toMatchObject({ status: 'interrupted', pending, usage: { input: 10 } });
    expect(await findRun()).toMatchObject({ status: 'paused', usage: { input: 10 } });
    expect(pausing.mock.calls[0]?.[0]).toMatchObject({
      limit: 10,
      request: { idempotencyKey: 'k1', message: { message: 'What is soil?' } },
    });
    expect(await readMetric('sibyl_turns_total')).toEqual(['{status="paused",kind=""} 1']);
    await expect.poll(() => settled).toHaveLength(1);
    expect([naming.calls, await findTitle()]).toEqual([[], UNTITLED]);
  });

  it('fails if its user has too many paused turns', async () => {
    const { start, frames, findRun, findTrace, readMetric } = await openAsking({ paused: 0 });
    const { status, error, pending } = await start();
    expect([status, pending]).toEqual(['failed', undefined]);
    const [counted, ...others] = await readMetric('sibyl_turns_total');
    expect([counted, others]).toEqual([expect.stringMatching(/status="failed".* 1$/), []]);
    expect(error).toMatchObject({ code: 'too_many_paused', retryAfterSeconds: 5 });
    expect(frames('error')).toMatchObject([{ code: 'too_many_paused' }]);
    expect(findTrace()).toMatchObject({ cause: 'too_many_paused' });
    expect(await findRun()).toMatchObject({ status: 'failed' });
  });
});

describe('the metrics of a turn', () => {
  const FIRST_TEXT = 'sibyl_time_to_first_token_seconds';
  const readSum = async (samples: Promise<string[]>) => Number((await samples)[0]?.split(' ')[1]);

  it('count its time in the queue until its first text, by the main model', async () => {
    const run = { createdAt: 1_000, startedAt: 91_000 };
    const { start, readMetric } = await openTurn({ run });
    await start();
    const [sum = ''] = await readMetric(`${FIRST_TEXT}_sum`);
    expect(sum).toMatch(/^\{model="vendor\/main"\} 90\.\d+$/);
    expect(await readMetric('sibyl_turns_total')).toEqual(['{status="finished",kind=""} 1']);
    expect(await readMetric('sibyl_turn_seconds_count')).toEqual(['{status="finished"} 1']);
    expect(await readSum(readMetric('sibyl_turn_seconds_sum'))).toBeLessThan(30);
    expect(await readMetric('sibyl_turn_failures_total')).toEqual([]);
  });

  it.each([
    ['whose clocks differ', { createdAt: 91_000, startedAt: 1_000 }],
    ['that did not wait', { createdAt: 91_000, startedAt: undefined }],
  ])('count no time in the queue for a turn %s, and name the chosen model', async (_, run) => {
    const message = { message: 'Hi', multitask: 'enqueue', model: 'vendor/other' } as const;
    const { start, readMetric } = await openTurn({ run, request: { message } });
    await start();
    const samples = readMetric(`${FIRST_TEXT}_sum`);
    expect((await samples)[0]).toContain('{model="vendor/other"}');
    expect(await readSum(samples)).toBeGreaterThan(0);
    expect(await readSum(samples)).toBeLessThan(30);
  });

  it('count no first text of a turn that says nothing', async () => {
    const { start, readMetric, findTrace } = await openFailing(new OracleError('forbidden'));
    await start();
    expect(await readMetric(`${FIRST_TEXT}_count`)).toEqual([]);
    expect(findTrace()?.firstTextMs).toBeUndefined();
  });

  it('take text for an answer, but not reasoning', async () => {
    const model = new ScriptedModel(async function* () {
      yield { type: 'reasoning', text: 'Hm' };
      await never();
    });
    const { start, readMetric } = await openTurn({ model, limits: { ms: 20 } });
    await start();
    expect(await readMetric(`${FIRST_TEXT}_count`)).toEqual([]);
  });
});

describe('the title of a session', () => {
  it('is generated after its first answer, as part of what the turn costs', async () => {
    const { start, run, findTitle, settled, naming } = await openTurn();
    await start();
    await expect.poll(() => settled).toHaveLength(1);
    expect(await findTitle()).toBe('Soil basics');
    expect(naming.lastMessages).toMatchObject([
      { content: 'User: What is soil?\n\nAssistant: Hello.' },
    ]);
    expect(settled[0]).toMatchObject([{ input: 20, output: 10, cached: 4 }]);
    const stored = await test.store.usage.read(run.owner, 0);
    const used = { input_tokens: 20, output_tokens: 10, cached_tokens: 4 };
    expect(stored).toContainEqual(expect.objectContaining({ model: 'scripted/model', ...used }));
  });

  it.each<[string, TurnOptions]>([
    ['that has one', { title: 'My title' }],
    ['without an answer', { prepare: () => Promise.reject(new OracleError('forbidden')) }],
  ])('is not generated for a session %s', async (_, options) => {
    const { start, findTitle, settled, naming } = await openTurn(options);
    await start();
    await expect.poll(() => settled).toHaveLength(1);
    expect([naming.calls, await findTitle()]).toEqual([[], UNTITLED]);
  });

  it('is kept, and the turn settled, even if its cost cannot be stored', async () => {
    const usage = { replace: vi.fn(() => Promise.reject(new Error('away'))) };
    const { start, run, findTitle, settled, log } = await openTurn({ usage });
    expect((await start()).status).toBe('finished');
    await expect.poll(() => settled).toHaveLength(1);
    expect(await findTitle()).toBe('Soil basics');
    expect(usage.replace).toHaveBeenCalledExactlyOnceWith(run, settled[0]);
    expect(log).toMatchObject([{ level: 40, runId: run.runId }]);
  });
});

describe('a turn under a delegation', () => {
  const permission = { owner: 'did:key:zO', cid: 'bafy', resource: 'ixo:oracle:x:schedule/7' };
  const request = { permission };

  it('makes clients reload the session when its question and its answer are stored', async () => {
    const { start, run, published } = await openTurn({ request });
    await start();
    const { sessionId, requestId } = run;
    const event = 'message_cache_invalidation';
    const payload = { sessionId, requestId, status: 'done' };
    const [first, ...others] = published.filter((each) => each.event === event);
    expect(first).toEqual({ event, payload, position: toPosition(run, 0) });
    expect(others).toContainEqual({ event, payload, position: endOfRun(run) });
    expect(published.indexOf(first as ServerEvent)).toBe(0);
  });

  it('ends when the delegation expires, and stops waiting for that with its end', async () => {
    const ended = new OracleError('delegation_ended');
    const release = vi.fn();
    const hold = vi.fn(async (_: unknown, onExpired: (error: OracleError) => void) => {
      setImmediate(() => onExpired(ended));
      return release;
    });
    const { start } = await openTurn({ request, grants: { hold }, prepare: never });
    expect(await start()).toMatchObject({ status: 'aborted', error: ended });
    expect(hold.mock.calls[0]?.[0]).toEqual(permission);
    expect(release).toHaveBeenCalledOnce();
  });

  it('does not begin if the delegation is not valid', async () => {
    const error = new OracleError('delegation_ended');
    const prepare = vi.fn(never);
    const grants = { hold: () => Promise.reject(error) };
    const { start } = await openTurn({ request, grants, prepare });
    expect(await start()).toMatchObject({ status: 'failed', error });
    expect(prepare).not.toHaveBeenCalled();
  });

  it('is the only one that needs one, and that is announced', async () => {
    const hold = vi.fn(async () => () => {});
    const { start, published } = await openTurn({ grants: { hold } });
    await start();
    expect(hold).not.toHaveBeenCalled();
    const positions = published.map(({ position }) => position?.seq);
    expect(positions).not.toContain(0);
  });
});

describe('the span of a turn', () => {
  function createExporter() {
    const spans: ReadableSpan[] = [];
    const done = async () => undefined;
    const onEnd = (span: ReadableSpan) => void spans.push(span);
    const processor = { onStart: () => {}, onEnd, forceFlush: done, shutdown: done };
    const tracer = new TracerProvider({ spanProcessors: [processor] }).getTracer('test');
    const exporter: SpanExporter = { tracer, capturesContent: false, close: done };
    return { exporter, find: () => spans.find(({ name }) => name === 'invoke_agent Sibyl') };
  }

  it('names the agent, the run, its user, its session and its host', async () => {
    const { exporter, find } = createExporter();
    const { start, run } = await openTurn({ exporter });
    await start();
    expect(find()?.attributes).toEqual({
      'gen_ai.operation.name': 'invoke_agent',
      'gen_ai.agent.name': 'Sibyl',
      'gen_ai.conversation.id': run.sessionId,
      'gen_ai.provider.name': 'vendor',
      'gen_ai.request.model': 'main',
      'sibyl.run.id': run.runId,
      'user.id': run.owner,
      'session.id': run.sessionId,
      'service.instance.id': 'host-1',
    });
    expect(find()?.status.code).toBe(SpanStatusCode.UNSET);
  });

  it.each<[string, string, TurnOptions['prepare']]>([
    ['fails', 'forbidden', () => Promise.reject(new OracleError('forbidden'))],
    [
      'is aborted',
      'aborted',
      (live) => {
        live.cancel('aborted');
        return never();
      },
    ],
  ])('of one that %s has the error %s', async (_, code, prepare) => {
    const { exporter, find } = createExporter();
    const { start } = await openTurn({ exporter, ...(prepare && { prepare }) });
    await start();
    expect(find()?.status).toEqual({ code: SpanStatusCode.ERROR, message: code });
  });

  it('of one that throws has the code of what it throws', async () => {
    const { exporter, find } = createExporter();
    const { start } = await openTurn({ exporter });
    const lost = Object.assign(new Error('lost'), { code: 'ECONNRESET' });
    vi.spyOn(RunRecorder.prototype, 'end').mockRejectedValue(lost);
    await expect(start()).rejects.toBe(lost);
    expect(find()?.status.message).toBe('ECONNRESET');
  });
});
