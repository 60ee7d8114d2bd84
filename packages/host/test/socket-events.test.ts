import { serverEvents } from '@sibyl/protocol';
import { describe, expect, it } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import { useControlledHost } from './support/controlled-host.js';
import { emitter, routedSteps } from './support/emitter.js';
import { startHost } from './support/host.js';
import { joinSession, type SessionSocket } from './support/session-socket.js';
import { openSession, type SseFrame, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost({ plugins: [emitter] });

/** The events that a socket must receive of a stream, in order. */
function listExpectedEvents(frames: readonly SseFrame[]) {
  return frames
    .filter(({ event }) => event in serverEvents)
    .filter(({ event, data }) => event !== 'action_call' || data.status === 'isRunning')
    .map(({ event: name, data }) => ({ name, data: wrapped(name, data) }));
}

function wrapped(name: string, payload: unknown): unknown {
  const { wrapping } = serverEvents[name as keyof typeof serverEvents];
  return wrapping === 'enveloped' ? { eventName: name, payload } : payload;
}

/** Of the connection and of the list of sessions. */
const OTHERS = ['connected', 'sessions_changed'];

const listEvents = ({ received }: SessionSocket) =>
  received.filter(({ name }) => !name.startsWith('(') && !OTHERS.includes(name));

describe('socket events of a turn', () => {
  it('have their position as the last argument, unless the handshake has positions: false', async () => {
    const sessionId = await openSession(test.alice);
    const counts = { all: new Set<number>(), one: new Set<number>() };
    const auth = { invocation: test.alice.mint() };
    const all = await joinSession(test.alice, sessionId, { auth });
    const one = await joinSession(test.alice, sessionId, { auth: { ...auth, positions: false } });
    all.socket.on('router_update', (...args) => counts.all.add(args.length));
    one.socket.on('router_update', (...args) => counts.one.add(args.length));
    const live = await stream(test.alice, sessionId, { message: 'route' });
    (await test.model.next()).call({ name: 'route', input: { steps: ['a', 'b'] } });
    (await test.model.next()).answer('Done.');
    await live.toEnd();
    await expect.poll(() => [[...counts.all], [...counts.one]]).toEqual([[2], [1]]);
  });

  it('are sent to every socket of its session, in the order of its frames', async () => {
    const sessionId = await openSession(test.alice);
    const sockets = [
      await joinSession(test.alice, sessionId),
      await joinSession(test.alice, sessionId, { transports: ['polling'] }),
    ];
    const live = await stream(test.alice, sessionId, { message: 'emit all' });
    const first = await test.model.next();
    first.think('I will emit.');
    first.call({ name: 'emit_all', input: {} }, { name: 'route', input: { steps: ['a', 'b'] } });
    const second = await test.model.next();
    second.say('Done.');
    second.finish();
    const expected = listExpectedEvents(await live.toEnd());
    expect(expected.map(({ name }) => name)).toEqual(
      expect.arrayContaining([
        'reasoning',
        'tool_call',
        'action_call',
        'render_component',
        'browser_tool_call',
        'router_update',
        'message_cache_invalidation',
      ]),
    );
    for (const socket of sockets) {
      await expect.poll(() => listEvents(socket).length).toBe(expected.length);
      expect(listEvents(socket)).toEqual(expected);
    }
  });

  it('have the schemas and wrapping of serverEvents', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinSession(test.alice, sessionId);
    const live = await stream(test.alice, sessionId, { message: 'emit all', requestId: 'r-7' });
    (await test.model.next()).call({ name: 'emit_all', input: {} });
    (await test.model.next()).finish();
    await live.toEnd();
    await socket.until('tool_call', ({ payload }) => payload.status === 'done');
    for (const { name, data } of listEvents(socket)) {
      const { payload, wrapping } = serverEvents[name as keyof typeof serverEvents];
      const body = wrapping === 'enveloped' ? data.payload : data;
      if (wrapping === 'enveloped') expect(data.eventName).toBe(name);
      expect(payload.parse(body)).toMatchObject({ sessionId, requestId: 'r-7' });
    }
  });

  it('do not include the end of an action, which a page would run again', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinSession(test.alice, sessionId);
    const live = await stream(test.alice, sessionId, { message: 'emit all' });
    (await test.model.next()).call({ name: 'emit_all', input: {} });
    (await test.model.next()).finish();
    const frames = (await live.toEnd()).filter(({ event }) => event === 'action_call');
    expect(frames.map(({ data }) => data.status)).toEqual(['isRunning', 'done']);
    await socket.until('message_cache_invalidation');
    expect(socket.all('action_call')).toMatchObject([{ toolCallId: 'a1', status: 'isRunning' }]);
  });

  it('omit invalid events of a plugin, without effect on plugin and turn', async () => {
    const sessionId = await openSession(test.alice);
    const socket = await joinSession(test.alice, sessionId);
    const live = await stream(test.alice, sessionId, { message: 'emit wrongly' });
    (await test.model.next()).call({ name: 'emit_wrongly', input: {} });
    const second = await test.model.next();
    expect(second.body.messages.at(-1).content).toContain('unharmed');
    second.finish();
    expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
    await socket.until('router_update', ({ step }) => step === 'still here');
    const faults = test.host.log.filter(({ msg }) => String(msg).includes('dropped'));
    expect(faults.map(({ event }) => event)).toEqual([
      'router_update',
      'router_update',
      'tool_call',
    ]);
  });
});

const CLIENTS = scale(500, 100);
it(`${CLIENTS} sockets in as many sessions each receive the events of their session, complete and in order`, {
  timeout: 240_000,
}, async () => {
  const host = await startHost({ plugins: [emitter] });
  const users = Array.from({ length: CLIENTS }, () => new TestUser(host));
  const clients = await Promise.all(
    users.map(async (user) => {
      const sessionId = await openSession(user);
      return { user, sessionId, socket: await joinSession(user, sessionId) };
    }),
  );
  const buildSteps = (sessionId: string) => [1, 2, 3].map((n) => `${sessionId}-${n}`);
  const answers = await Promise.all(
    clients.map(({ user, sessionId }) => {
      const steps = JSON.stringify({ steps: buildSteps(sessionId) });
      return user.request('POST', `/messages/${sessionId}`, {
        body: { message: `use route ${steps}` },
      });
    }),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  for (const { sessionId, socket } of clients) {
    await socket.until('tool_call', ({ payload }) => payload.status === 'done');
    expect(routedSteps(socket)).toEqual(buildSteps(sessionId));
    const places = socket.received.filter(({ name }) => !name.startsWith('('));
    for (const { data } of places) expect((data.payload ?? data).sessionId).toBe(sessionId);
  }
  await host.close();
});
