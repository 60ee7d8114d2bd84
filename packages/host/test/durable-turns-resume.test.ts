import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { runHost, untilListening } from './support/process.js';
import { join, openSession, type SseStream, stream } from './support/stream.js';
import { createTestDatabase, engines, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

const CRASHES = scale(3, 2);
const JOURNAL = joinPath(import.meta.dirname, 'support/journal-process.ts');

let folder: string;
let model: ControlledModel;
let database: TestDatabase;
beforeAll(async () => {
  folder = mkdtempSync(joinPath(tmpdir(), 'sibyl-journal-'));
  model = await startControlledModel();
});
afterEach(() => model.discard());
afterAll(() => {
  model.close();
  rmSync(folder, { recursive: true, force: true });
});

const traceFile = () => joinPath(folder, 'trace');
const readTraces = () =>
  existsSync(traceFile()) ? readFileSync(traceFile(), 'utf8').split('\n').slice(0, -1) : [];

async function start() {
  const env = { PORT: '0', ...database.env, ...model.env, RESUME_TURNS: 'true' };
  const host = runHost({ ...env, TRACE_FILE: traceFile() }, [], JOURNAL);
  onTestFinished(() => void host.child.kill('SIGKILL'));
  const url = await untilListening(host);
  const card = (await (await fetch(`${url}/.well-known/oracle.json`)).json()) as { did: string };
  return {
    url,
    did: card.did,
    kill: async () => {
      host.child.kill('SIGKILL');
      await host.ended;
    },
  };
}

/** Joins the attempt that continues the turn of a session. */
async function joinNext(user: TestUser, sessionId: string, before: SseStream): Promise<SseStream> {
  const readRun = async () => (await user.request('GET', `/sessions/${sessionId}/run`)).body.run;
  await expect.poll(async () => (await readRun()).runId).not.toBe(before.runId);
  return join(user, (await readRun()).runId, 0);
}

describe.each(engines)('RESUME_TURNS on %s', (engine) => {
  beforeAll(async () => {
    database = await createTestDatabase(engine);
  });
  afterAll(() => database.drop());

  it('continues a turn from its last step as a new attempt', { timeout: 120_000 }, async () => {
    const first = await start();
    const alice = new TestUser(first);
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'Act once' });
    const opening = await model.next();
    opening.say('I will act. ');
    opening.call({ name: 'act', input: { text: `${engine} step` } });
    const second = await model.next();
    expect(second.results).toHaveLength(1);
    second.say('It is ');
    await live.until(({ data }) => data.content?.includes('It is '));
    await first.kill();

    const later = alice.at(await start());
    const again = await model.next();
    // The step that was complete is not repeated, and its result is known.
    expect(again.results).toEqual(second.results);
    expect(again.body.messages).toHaveLength(second.body.messages.length);
    const next = await joinNext(later, sessionId, live);
    again.answer('It is done');
    const frames = await next.toEnd();
    expect(frames[0]).toMatchObject({
      event: 'run',
      id: 1,
      data: { resumed: true, attempt: 2, partialLength: 'I will act. '.length },
    });
    expect(frames.at(-1)?.data).toMatchObject({ status: 'finished' });
    expect(readTraces().filter((line) => line === `${engine} step`)).toHaveLength(1);
    const { messages } = (await later.request('GET', `/messages/${sessionId}`)).body;
    expect(messages).toMatchObject([
      { type: 'human', content: 'Act once' },
      {
        type: 'ai',
        content: expect.stringMatching(/^I will act\.\s+It is done$/),
        isComplete: true,
      },
    ]);
    expect(messages[1].toolCalls).toMatchObject([{ name: 'act', status: 'done' }]);
    // A client that only knows the first attempt learns that it ended.
    const old = await (await join(later, live.runId, live.lastId)).toEnd();
    expect(old.at(-1)?.event).toBe('done');
  });

  it('never runs a tool again whose result is unknown', { timeout: 240_000 }, async () => {
    const first = await start();
    const alice = new TestUser(first);
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'Act and hang' });
    const text = `${engine} hang`;
    (await model.next()).call({ name: 'act_and_hang', input: { text } });
    await expect.poll(readTraces).toContain(text);
    await first.kill();

    const later = alice.at(await start());
    const again = await model.next();
    expect(again.results).toHaveLength(1);
    expect(again.results[0]).toMatch(/unknown/);
    const next = await joinNext(later, sessionId, live);
    again.answer('I do not know whether it worked');
    expect((await next.toEnd()).at(-1)?.data).toMatchObject({ status: 'finished' });
    expect(readTraces().filter((line) => line === text)).toHaveLength(1);
  });

  it('continues a turn after several crashes, and counts its attempts', {
    timeout: 360_000,
  }, async () => {
    let host = await start();
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    await stream(alice, sessionId, { message: 'Survive' });
    for (let step = 0; step < CRASHES; step++) {
      const text = `${engine} crash ${step}`;
      (await model.next()).call({ name: 'act', input: { text } });
      const after = await model.next();
      expect(after.results).toHaveLength(1);
      await host.kill();
      host = await start();
      // The interrupted model call is repeated; it is answered in the next round.
      if (step === CRASHES - 1) (await model.next()).answer('Survived');
    }
    const later = alice.at(host);
    await expect
      .poll(async () => (await later.request('GET', `/sessions/${sessionId}/run`)).body.run.status)
      .toBe('finished');
    const traces = readTraces().filter((line) => line.startsWith(`${engine} crash`));
    expect(traces).toEqual(Array.from({ length: CRASHES }, (_, step) => `${engine} crash ${step}`));
    const { messages } = (await later.request('GET', `/messages/${sessionId}`)).body;
    expect(messages.at(-1)).toMatchObject({ content: 'Survived', isComplete: true });
  });
});
