import { beforeEach, describe, expect, it } from 'vitest';
import { newOwner, useStore } from '../../../test/support/test-database.js';
import { createQuestion } from '../../../test/support/test-interrupts.js';
import { finishTestRun, openTestSession, startTestRun } from '../../../test/support/test-runs.js';
import type { RunEnd } from '../runs/run.js';
import type { RunKey, TokenUsage } from '../schema/runs.js';
import type { Store } from '../store.js';
import type { TurnFilter } from './turn-reports.js';

const HOUR_MS = 60 * 60 * 1000;

const pause = ({ runs }: Store, key: RunKey, interruptId: string) =>
  runs.pause({
    ...key,
    interrupts: [createQuestion(interruptId)],
    limit: 10,
    steps: [],
    request: {},
    end: { message: { content: '', isComplete: false } },
  });

/** A turn that has ended, in a new session unless one is given. */
async function endTurn(
  store: Store,
  end: Partial<RunEnd>,
  session?: { owner: string; sessionId: string },
): Promise<RunKey> {
  const { key } = await startTestRun(store, session);
  await finishTestRun(store.runs, key, end);
  return key;
}

const failWith = (cause: string, message?: string): Partial<RunEnd> => ({
  status: 'failed',
  trace: { cause },
  ...(message !== undefined && { error: { kind: 'server', message } }),
});

// Operators see the turns of all users.
describe('TurnReports of open turns', () => {
  const test = useStore('sqlite', { hasTwins: false });

  it('countOpen counts queued, running and paused turns of all users, and none that has ended', async () => {
    const { store } = test;
    const { turnReports } = store;
    expect(await turnReports.countOpen()).toEqual({ queued: 0, running: 0, paused: 0 });
    const first = await startTestRun(store);
    for (const _ of [1, 2, 3]) await startTestRun(store, first.session);
    const second = await startTestRun(store);
    await pause(store, (await startTestRun(store)).key, 'question');
    await endTurn(store, failWith('timeout'));
    expect(await turnReports.countOpen()).toEqual({ queued: 3, running: 2, paused: 1 });
    await finishTestRun(store.runs, second.key);
    expect(await turnReports.countOpen()).toEqual({ queued: 3, running: 1, paused: 1 });
  });
});

describe('TurnReports.countSpeeds', () => {
  let now = 0;
  const test = useStore('sqlite', { hasTwins: false, clock: () => now });
  const answerAfter = (firstTextMs?: number) => endTurn(test.store, { trace: { firstTextMs } });

  beforeEach(() => {
    // What earlier tests stored is before the time that is asked for.
    now += 1000 * HOUR_MS;
  });

  it('rounds the time to the first text down to two digits, and adds up turns with the same', async () => {
    for (const ms of [0, 99, 100, 109, 110, 999, 1000, 1099, 9999, 10_000, 12_345])
      await answerAfter(ms);
    await answerAfter();
    const counts = await test.store.turnReports.countSpeeds(now, HOUR_MS);
    expect(counts.map(({ ms, count }) => [ms, count]).sort(([a = 0], [b = 0]) => a - b)).toEqual([
      [0, 1],
      [99, 1],
      [100, 2],
      [110, 1],
      [990, 1],
      [1000, 2],
      [9900, 1],
      [10_000, 1],
      [12_000, 1],
    ]);
    expect(counts.every(({ at }) => at === now)).toBe(true);
  });

  it('counts turns in steps of time, from those that ended at the given time on', async () => {
    const since = now;
    now = since - 1;
    await answerAfter(1);
    now = since;
    await answerAfter(1);
    now = since + HOUR_MS - 1;
    await answerAfter(1);
    now = since + HOUR_MS;
    await answerAfter(1);
    // It has not ended.
    await startTestRun(test.store);
    const counts = await test.store.turnReports.countSpeeds(since, HOUR_MS);
    expect([...counts].sort((a, b) => a.at - b.at)).toEqual([
      { at: since, ms: 1, count: 2 },
      { at: since + HOUR_MS, ms: 1, count: 1 },
    ]);
  });
});

describe('TurnReports.sumByUser', () => {
  let now = 0;
  const test = useStore('sqlite', { hasTwins: false, clock: () => now });

  beforeEach(() => {
    now += 1000 * HOUR_MS;
  });

  const use = (session: { owner: string; sessionId: string }, usage: TokenUsage) =>
    endTurn(test.store, { usage }, session);

  it('adds up turns, failures, tokens and costs of each user, those with most tokens first', async () => {
    const { store } = test;
    const since = now;
    const [small, large] = [await openTestSession(store), await openTestSession(store)];
    now = since - 1;
    await use(large, { input: 1000, output: 1000, cached: 0, cost: 9 });
    now = since;
    await use(small, { input: 1, output: 2, cached: 0 });
    for (const _ of [2, 3, 4]) await use(small, { input: 0, output: 0, cached: 0 });
    const title = { model: 'title', input: 5, output: 6, cached: 0 };
    const models = [{ model: 'answer', input: 10, output: 20, cached: 0, cost: 0.5 }, title];
    await use(large, { input: 10, output: 20, cached: 0, cost: 0.5, models });
    await endTurn(store, failWith('timeout'), large);
    now = since + 5;
    await use(large, { input: 1, output: 1, cached: 0, cost: 0.25 });
    await startTestRun(store, large);
    expect(await store.turnReports.sumByUser(since)).toEqual([
      {
        ...{ user: large.owner, turns: 3, failed: 1, cost: 0.75, lastAt: since + 5 },
        // With the tokens of the title.
        ...{ inputTokens: 16, outputTokens: 27 },
      },
      {
        ...{ user: small.owner, turns: 4, failed: 0, cost: null, lastAt: since },
        ...{ inputTokens: 1, outputTokens: 2 },
      },
    ]);
  });

  it('orders users with the same number of tokens by their turns', async () => {
    const { store } = test;
    const sessions = [];
    for (const _ of [1, 2, 3]) sessions.push(await openTestSession(store));
    const [one, three, two] = sessions;
    if (!one || !two || !three) throw new Error('not opened');
    await use(one, { input: 3, output: 3, cached: 0 });
    await use(three, { input: 6, output: 0, cached: 0 });
    await use(two, { input: 0, output: 6, cached: 0 });
    const none = { input: 0, output: 0, cached: 0 };
    for (const session of [two, three, three]) await use(session, none);
    const users = (await store.turnReports.sumByUser(now)).map(({ user }) => user);
    expect(users).toEqual([three.owner, two.owner, one.owner]);
  });

  it('counts a turn that was paused once, with the tokens of both attempts', async () => {
    const { store } = test;
    const { key } = await startTestRun(store);
    await store.runs.pause({
      ...{ ...key, interrupts: [createQuestion('paused once')], limit: 1 },
      ...{ steps: [], request: {} },
      end: {
        message: { content: '', isComplete: false },
        usage: { input: 1, output: 2, cached: 0 },
      },
    });
    const answer = { owner: key.owner, interruptId: 'paused once', status: 'answered' } as const;
    const continued = await store.runs.endInterrupt(answer);
    if (continued.state !== 'continued') throw new Error(continued.state);
    const next = { owner: key.owner, runId: continued.run.runId };
    await finishTestRun(store.runs, next, { usage: { input: 10, output: 20, cached: 0 } });
    expect(await store.turnReports.sumByUser(now)).toMatchObject([
      { user: key.owner, turns: 1, inputTokens: 11, outputTokens: 22 },
    ]);
  });
});

describe('TurnReports.countCauses', () => {
  let now = 1000 * HOUR_MS;
  const test = useStore('sqlite', { hasTwins: false, clock: () => now });

  it('counts why turns of all users had no answer, most frequent first, each with its last message', async () => {
    const { store } = test;
    const since = now;
    now = since - 1;
    for (const _ of [1, 2, 3]) await endTurn(store, failWith('rare', 'too old'));
    now = since;
    await endTurn(store, failWith('rare', 'once'));
    await endTurn(store, failWith('frequent', 'first'));
    now = since + 1;
    await endTurn(store, failWith('frequent', 'second'));
    await endTurn(store, failWith('silent'));
    await endTurn(store, failWith('silent'));
    now = since + 2;
    await endTurn(store, failWith('frequent', 'third'));
    await endTurn(store, {});
    expect(await store.turnReports.countCauses(since)).toEqual([
      { cause: 'frequent', count: 3, lastAt: since + 2, lastMessage: 'third' },
      { cause: 'silent', count: 2, lastAt: since + 1, lastMessage: undefined },
      { cause: 'rare', count: 1, lastAt: since, lastMessage: 'once' },
    ]);
  });
});

describe('TurnReports.list', () => {
  let now = 1000;
  const test = useStore('sqlite', { hasTwins: false, clock: () => now++ });

  /** Open and ended turns of one user, with their ids. */
  async function createTurns() {
    const { store } = test;
    const { owner } = await openTestSession(store);
    const open = async () => {
      const { sessionId } = await store.sessions.create({
        owner,
        oracleDid: 'did:key:zOracle',
      });
      return { owner, sessionId };
    };
    const failed = await endTurn(store, failWith('timeout'), await open());
    const running = await startTestRun(store, await open());
    const paused = await startTestRun(store, await open());
    await pause(store, paused.key, 'question');
    const queued = await startTestRun(store, running.session);
    const aborted = await endTurn(
      store,
      { status: 'aborted', trace: { cause: 'aborted' } },
      await open(),
    );
    const finished = await endTurn(store, {}, await open());
    return {
      owner,
      open: [queued, paused, running].map(({ key }) => key.runId),
      ended: [finished, aborted, failed].map(({ runId }) => runId),
    };
  }

  const list = async (filter: Partial<TurnFilter>) =>
    (await test.store.turnReports.list({ state: 'all', limit: 100, ...filter })).map(
      ({ id }) => id,
    );

  it('returns open turns first, then the latest that ended, of one user or of all', async () => {
    const { owner: user, open, ended } = await createTurns();
    expect(await list({ user })).toEqual([...open, ...ended]);
    expect(await list({ user, state: 'open' })).toEqual(open);
    const others = await createTurns();
    expect(await list({ user })).toEqual([...open, ...ended]);
    expect(await list({})).toEqual([...others.open, ...open, ...others.ended, ...ended]);
    expect(await list({ user: newOwner() })).toEqual([]);
  });

  it('returns no more turns than the limit', async () => {
    const { owner: user, open, ended } = await createTurns();
    expect(await list({ user, limit: 4 })).toEqual([...open, ...ended.slice(0, 1)]);
    expect(await list({ user, limit: 2 })).toEqual(open.slice(0, 2));
    expect(await list({ user, limit: 2, state: 'open' })).toEqual(open.slice(0, 2));
    expect(await list({ user, limit: 1, state: 'failed' })).toEqual(ended.slice(1, 2));
  });

  it('returns only turns without a complete answer, or those of one cause', async () => {
    const { owner: user, ended } = await createTurns();
    const [, aborted, failed] = ended;
    expect(await list({ user, state: 'failed' })).toEqual([aborted, failed]);
    expect(await list({ user, state: 'failed', cause: 'timeout' })).toEqual([failed]);
    expect(await list({ user, cause: 'timeout' })).toEqual([failed]);
    expect(await list({ user, state: 'open', cause: 'timeout' })).toEqual([]);
  });

  it('find returns the turn of any user by its id', async () => {
    const { owner, ended } = await createTurns();
    await createTurns();
    const [, , failed = ''] = ended;
    expect(await test.store.turnReports.find(failed)).toMatchObject({
      ...{ id: failed, owner, status: 'failed', cause: 'timeout' },
    });
    expect(await test.store.turnReports.find('unknown')).toBeUndefined();
  });
});

describe('TurnReports.countJobs', () => {
  const test = useStore('sqlite', { hasTwins: false });

  async function addDocument(owner: string, textStatus: 'pending' | 'ready'): Promise<void> {
    const { files } = test.store;
    const upload = { owner, name: 'a', size: 1, storage: 'database', chunkBytes: 1 } as const;
    const key = await files.begin({ ...upload, maxBytes: 1_000_000 });
    if (!key) throw new Error('no space');
    const hash = crypto.randomUUID();
    await files.finish({ ...key, size: 1, hash, mediaType: 'text/plain', textStatus });
  }

  it('counts imports by their state, documents to read and texts to index, of all users', async () => {
    const { turnReports, imports, runs } = test.store;
    const none = { waiting: 0, running: 0, failed: 0 };
    expect(await turnReports.countJobs()).toEqual([
      { ...none, name: 'Imports' },
      { ...none, name: 'Documents to read' },
      { ...none, name: 'Texts to index' },
    ]);
    const progress = { format: null, bytes: 0, totalBytes: 0, stored: {}, present: 0, refused: 0 };
    const failed = ['failed', 'failed', 'failed', 'failed'] as const;
    for (const status of ['running', 'running', 'finished', ...failed] as const)
      await imports.createJob(newOwner(), { ...progress, status });
    for (const status of ['pending', 'ready', 'pending'] as const)
      await addDocument(newOwner(), status);
    const { key } = await startTestRun(test.store);
    await finishTestRun(runs, key, { content: 'hello' });
    const [jobs, documents, texts] = await turnReports.countJobs();
    expect(jobs).toEqual({ name: 'Imports', waiting: 0, running: 2, failed: 4 });
    expect(documents).toEqual({ ...none, name: 'Documents to read', waiting: 2 });
    // The question and the answer.
    expect(texts).toEqual({ ...none, name: 'Texts to index', waiting: 2 });
  });
});
