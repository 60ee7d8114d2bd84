import { type RunFrameName, runFrames } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { join, openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();

const run = async (sessionId: string) =>
  (await test.alice.request('GET', `/sessions/${sessionId}/run`)).body.run;
const messages = async (sessionId: string) =>
  (await test.alice.request('GET', `/messages/${sessionId}`)).body.messages;

describe('a stream', () => {
  it('has the headers and frames of the contract, numbered from one, ending in done', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'hi' });
    const turn = await test.model.next();
    turn.think('Hm.');
    await live.untilEvent('reasoning');
    turn.say('Hello ');
    await live.untilEvent('message');
    turn.say('there');
    turn.finish();
    const frames = await live.toEnd();
    expect(Object.fromEntries(live.response.headers)).toMatchObject({
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache, no-transform',
      'x-accel-buffering': 'no',
      'x-request-id': expect.any(String),
      'x-run-id': expect.any(String),
    });
    expect(frames.map(({ id }) => id)).toEqual(frames.map((_, i) => i + 1));
    expect(frames.map(({ event }) => event)).toEqual([
      'run',
      'reasoning',
      'reasoning',
      'message',
      'message',
      'done',
    ]);
    for (const { event, data } of frames) runFrames[event as RunFrameName].parse(data);
    expect(frames[0]?.data).toEqual({
      runId: live.runId,
      sessionId,
      requestId: live.response.headers.get('x-request-id'),
    });
    const { id } = (await messages(sessionId)).at(-1);
    const usage = { inputTokens: 7, outputTokens: 3, cachedTokens: 0 };
    const done = { runId: live.runId, status: 'finished', messageId: id, usage };
    expect(frames.at(-1)?.data).toEqual(done);
  });

  it('spends at most 120 bytes on a token', async () => {
    const live = await stream(test.alice, await openSession(test.alice), { message: 'hi' });
    const turn = await test.model.next();
    for (let i = 0; i < 20; i++) {
      turn.say(`word${i} `);
      await live.until(({ data }) => data.content === `word${i} `);
    }
    turn.finish();
    const frames = (await live.toEnd()).filter(({ event }) => event === 'message');
    expect(frames).toHaveLength(20);
    const bytes = frames.map(
      ({ event, id, data }) =>
        `event: ${event}\nid: ${id}\ndata: ${JSON.stringify(data)}\n\n`.length,
    );
    expect(Math.max(...bytes)).toBeLessThanOrEqual(120);
  });

  it('answers faults of the request with their status, before any frame', async () => {
    const sessionId = await openSession(test.alice);
    const eve = new TestUser(test.host);
    const send = (user: TestUser, id: string, body: object) =>
      user.request('POST', `/messages/${id}`, { body: { stream: true, ...body } });
    expect((await send(test.alice, 'unknown', { message: 'hi' })).body.code).toBe(
      'session_not_found',
    );
    expect((await send(eve, sessionId, { message: 'hi' })).body.code).toBe('session_not_found');
    expect((await send(test.alice, sessionId, {})).status).toBe(400);
    const unknown = await send(test.alice, sessionId, { message: 'hi', model: 'no/such' });
    expect([unknown.status, unknown.body.message]).toEqual([400, ['model: unknown; see /models']]);
    expect(await messages(sessionId)).toEqual([]);
  });
});

describe('a client that drops', () => {
  it('ends nothing, and joins again without gap or repeat', async () => {
    const sessionId = await openSession(test.alice);
    const first = await stream(test.alice, sessionId, { message: 'hi' });
    const turn = await test.model.next();
    turn.say('one ');
    await first.untilEvent('message');
    await first.drop();
    turn.say('two ');
    const second = await join(test.alice, first.runId, first.lastId);
    turn.say('three');
    turn.finish();
    await second.toEnd();
    expect(first.text + second.text).toBe('one two three');
    const ids = [...first.frames, ...second.frames].map(({ id }) => id);
    expect(ids).toEqual(ids.map((_, i) => i + 1));
    expect((await messages(sessionId)).at(-1)).toMatchObject({
      content: 'one two three',
      isComplete: true,
    });
  });

  it('may say where it was by Last-Event-ID', async () => {
    const live = await stream(test.alice, await openSession(test.alice), { message: 'hi' });
    const turn = await test.model.next();
    turn.say('all of it');
    turn.finish();
    const frames = await live.toEnd();
    const again = await fetch(`${test.host.url}/runs/${live.runId}`, {
      headers: { ...test.alice.headers, 'last-event-id': '2' },
    });
    const rest = await again.text();
    expect(rest).toMatch(/^event: done\nid: 3\n/);
    expect(frames).toHaveLength(3);
  });

  it('reads a finished run whole from the store, as often as it likes', async () => {
    const live = await stream(test.alice, await openSession(test.alice), { message: 'hi' });
    const turn = await test.model.next();
    turn.say('kept');
    turn.finish();
    const frames = await live.toEnd();
    for (let i = 0; i < 2; i++)
      expect(await (await join(test.alice, live.runId, 0)).toEnd()).toEqual(frames);
    const seen = await (await join(test.alice, live.runId, frames.length)).toEnd();
    expect(seen).toEqual([frames.at(-1)]);
  });
});

it('shows two clients the same frames, and a stranger none', async () => {
  const live = await stream(test.alice, await openSession(test.alice), { message: 'hi' });
  const turn = await test.model.next();
  turn.say('for both');
  const [a, b] = await Promise.all([
    join(test.alice, live.runId, 0),
    join(test.alice, live.runId, 0),
  ]);
  turn.finish();
  expect(await a.toEnd()).toEqual(await b.toEnd());
  expect(await live.toEnd()).toEqual(a.frames);
  const eve = new TestUser(test.host);
  const foreign = await eve.request('GET', `/runs/${live.runId}`);
  const unknown = await eve.request('GET', '/runs/unknown');
  expect([foreign.status, foreign.body.code]).toEqual([404, 'run_not_found']);
  expect({ ...foreign.body, requestId: '' }).toEqual({ ...unknown.body, requestId: '' });
});

describe('abort', () => {
  const abort = (sessionId: string, user = test.alice) =>
    user.request('POST', '/messages/abort', { body: { sessionId } });

  it('stops the model, keeps what had come, and ends with done', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'hi' });
    const turn = await test.model.next();
    turn.say('half an ans');
    await live.untilEvent('message');
    expect((await abort(sessionId)).body).toEqual({ success: true });
    await turn.left;
    expect((await live.toEnd()).at(-1)?.data).toMatchObject({
      status: 'aborted',
      aborted: true,
      partialText: 'half an ans',
    });
    expect((await messages(sessionId)).at(-1)).toMatchObject({
      type: 'ai',
      content: 'half an ans',
      isComplete: false,
    });
    expect(await run(sessionId)).toMatchObject({ status: 'aborted' });
    expect((await abort(sessionId)).body).toEqual({ success: false });
  });

  it('reaches turns that wait for JSON', async () => {
    const sessionId = await openSession(test.alice);
    const reply = test.alice.request('POST', `/messages/${sessionId}`, { body: { message: 'hi' } });
    const turn = await test.model.next();
    turn.say('partial');
    await expect.poll(async () => (await run(sessionId)).lastSeq).toBeGreaterThan(1);
    await abort(sessionId);
    const { status, body } = await reply;
    expect([status, body.message.content]).toEqual([200, 'partial']);
  });

  it('is not for strangers', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, { message: 'hi' });
    const turn = await test.model.next();
    expect((await abort(sessionId, new TestUser(test.host))).body).toEqual({ success: false });
    turn.say('still here');
    turn.finish();
    expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
  });
});

it('deleting the session ends its turn', async () => {
  const sessionId = await openSession(test.alice);
  const live = await stream(test.alice, sessionId, { message: 'hi' });
  const turn = await test.model.next();
  turn.say('about to go');
  await live.untilEvent('message');
  expect((await test.alice.request('DELETE', `/sessions/${sessionId}`)).status).toBe(200);
  await turn.left;
  expect((await live.toEnd()).at(-1)?.data.status).toBe('interrupted');
  expect((await test.alice.request('GET', `/messages/${sessionId}`)).status).toBe(404);
  expect((await test.alice.request('GET', `/runs/${live.runId}`)).status).toBe(404);
});
