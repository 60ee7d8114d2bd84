import { describe, expect, it, onTestFinished } from 'vitest';
import { allMessages } from '../../../test/support/all-messages.js';
import {
  createTestDatabase,
  engines,
  newOwner,
  type TestStore,
  useStore,
} from '../../../test/support/test-database.js';
import { createIdSource } from '../id-source.js';
import { openDatabase } from '../open-database.js';
import { SessionStore } from '../sessions/session-store.js';
import { closeAbandoned, type EndAbandoned, findAbandoned } from './close-abandoned.js';
import { RunStore } from './run-store.js';

const interrupt: EndAbandoned = (run, frames) => {
  const content = frames.map(({ data }) => JSON.parse(data).content).join('');
  const done = { seq: run.lastSeq + 1, event: 'done', data: '{"status":"interrupted"}' };
  return { status: 'interrupted', message: { content, isComplete: false }, frames: [done] };
};

async function startOne({ store }: TestStore) {
  const owner = newOwner();
  const { id: sessionId } = await store.sessions.create({ owner, oracleDid: 'did:key:zOracle' });
  const message = { content: 'hi' };
  const request = { owner, sessionId, requestId: 'request', status: 'running', message } as const;
  const result = await store.runs.start(request);
  if (result.state !== 'started') throw new Error(result.state);
  return { owner, sessionId, runId: result.run.id };
}

describe.each(engines)('interrupted runs on %s', (engine) => {
  let now = 1_000_000;
  const test = useStore(engine, { clock: () => now });

  it('leaves alone what this or another living process carries out', async () => {
    const key = await startOne(test);
    const second = await test.another();
    now += 29_000;
    expect(await test.store.runs.closeInterrupted(interrupt)).toEqual([]);
    expect(await second.runs.closeInterrupted(interrupt)).toEqual([]);
    await test.store.runs.renewLeases();
    now += 29_000;
    expect(await second.runs.closeInterrupted(interrupt)).toEqual([]);
    expect(await second.runs.find(key)).toMatchObject({ status: 'running' });
    await test.store.runs.finish({ ...key, ending: { status: 'finished' } });
  });

  it('closes once what is not renewed, with the text that had been streamed', async () => {
    const key = await startOne(test);
    const frames = ['The ', 'answer'].map((content, i) => ({
      seq: i + 1,
      event: 'message',
      data: JSON.stringify({ content }),
    }));
    await test.store.runs.appendFrames({ ...key, frames });
    const others = await Promise.all([test.another(), test.another()]);
    now += 31_000;
    const closed = await Promise.all(others.map(({ runs }) => runs.closeInterrupted(interrupt)));
    expect(closed.flat()).toMatchObject([{ run: { id: key.runId, status: 'interrupted' } }]);
    const stored = await allMessages(test.store, key);
    expect(stored.map(({ content, isComplete }) => ({ content, isComplete }))).toEqual([
      { content: 'hi', isComplete: true },
      { content: 'The answer', isComplete: false },
    ]);
    expect((await test.store.runs.frames({ ...key, after: 2 }))[0]?.event).toBe('done');
    const late = { status: 'finished', message: { content: 'late', isComplete: true } } as const;
    expect(await test.store.runs.finish({ ...key, ending: late })).toBeUndefined();
  });

  it('drops the logs of runs that ended long ago, and nothing else', async () => {
    const ended = await startOne(test);
    const live = await startOne(test);
    const frames = [{ seq: 1, event: 'message', data: '{"content":"x"}' }];
    for (const key of [ended, live]) await test.store.runs.appendFrames({ ...key, frames });
    const message = { content: 'x', isComplete: true };
    await test.store.runs.finish({ ...ended, ending: { status: 'finished', message } });
    const counts = async () =>
      Promise.all(
        [ended, live].map(
          async (key) => (await test.store.runs.frames({ ...key, after: 0 })).length,
        ),
      );
    await test.store.runs.pruneFrames({ endedBefore: now });
    expect(await counts()).toEqual([1, 1]);
    now += 1;
    await test.store.runs.pruneFrames({ endedBefore: now });
    expect(await counts()).toEqual([0, 1]);
    expect(await allMessages(test.store, ended)).toHaveLength(2);
  });
});

describe.each(engines)('the process of a run on %s', (engine) => {
  async function runOfDeadProcess() {
    const { options, drop } = await createTestDatabase(engine);
    const database = await openDatabase(options);
    onTestFinished(async () => {
      await database.close();
      await drop();
    });
    const context = { database, clock: Date.now, newId: createIdSource(Date.now) };
    const dead = new RunStore(context, { id: 'dead', isKnownDead: () => false });
    const heir = { id: 'heir', isKnownDead: (id: string) => id === 'dead' };
    const owner = newOwner();
    const session = await new SessionStore(context).create({ owner, oracleDid: 'did:o' });
    const message = { content: 'hi' };
    const request = { owner, sessionId: session.id, requestId: 'r', message };
    await dead.start({ ...request, status: 'queued' });
    return { context, dead, heir, database };
  }

  it('need not have been silent for long when it is known to be dead', async () => {
    const { context, heir } = await runOfDeadProcess();
    const closed = await new RunStore(context, heir).closeInterrupted(interrupt);
    expect(closed).toMatchObject([{ run: { status: 'interrupted' } }]);
  });

  it('keeps the run if it spoke up in between', async () => {
    const { context, dead, heir, database } = await runOfDeadProcess();
    const [abandoned] = await findAbandoned(database.tables, heir, () => false);
    if (abandoned === undefined) throw new Error('nothing was found');
    const later = { ...context, clock: () => Date.now() + 1_000 };
    await new RunStore(later, { ...heir, id: 'dead' }).renewLeases();
    const close = () =>
      database.write((tables) => closeAbandoned(tables, { abandoned, end: interrupt }, context));
    expect(await close()).toBeUndefined();
    expect(await dead.closeInterrupted(interrupt)).toEqual([]);
  });
});
