import { describe, expect, it } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import type { ModelTurn } from './support/controlled-model.js';
import { chart, listTools, resultsIn, scroll } from './support/page-tools.js';
import { joinSession, type SessionSocket } from './support/session-socket.js';
import { openSession, type SseStream, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();

const page = { message: 'go', tools: [scroll], agActions: [chart] };

interface Scene {
  readonly sessionId: string;
  readonly socket: SessionSocket;
  readonly live: SseStream;
  readonly turn: ModelTurn;
}

/** A turn at its first model call, and a page that listens. */
async function begin(body: Parameters<typeof stream>[2] = page): Promise<Scene> {
  const sessionId = await openSession(test.alice);
  const socket = await joinSession(test.alice, sessionId);
  const live = await stream(test.alice, sessionId, body);
  return { sessionId, socket, live, turn: await test.model.next() };
}

describe('a browser tool', () => {
  it('is run by the page, and its result goes to the model', async () => {
    const { sessionId, socket, live, turn } = await begin();
    expect(listTools(turn)).toEqual(expect.arrayContaining(['scroll', 'chart']));
    turn.call({ name: 'scroll', input: { by: 3 } });
    const call = await socket.until('browser_tool_call');
    const { requestId } = live.frames[0]?.data ?? (await live.untilEvent('run')).data;
    expect(call).toEqual({
      sessionId,
      requestId,
      toolCallId: expect.any(String),
      toolName: 'scroll',
      args: { by: 3 },
    });
    socket.socket.emit('tool_result', { toolCallId: call.toolCallId, result: { at: 30 } });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([{ at: 30 }]);
    next.finish();
    const frames = await live.toEnd();
    expect(
      frames
        .filter(({ event }) => event.endsWith('_call'))
        .map(({ event, data }) => [event, data.eventId ?? data.toolCallId, data.status]),
    ).toEqual([
      ['tool_call', call.toolCallId, 'isRunning'],
      ['browser_tool_call', call.toolCallId, undefined],
      ['tool_call', call.toolCallId, 'done'],
    ]);
  });

  it('receives only input that fits its schema', async () => {
    const { socket, turn, live } = await begin();
    turn.call({ name: 'scroll', input: { by: 'far' } });
    const next = await test.model.next();
    expect(resultsIn(next)[0].error).toContain('by');
    next.finish();
    await live.toEnd();
    expect(socket.all('browser_tool_call')).toEqual([]);
  });

  it('fails with the error of the page', async () => {
    const { socket, turn, live } = await begin();
    turn.call({ name: 'scroll', input: { by: 3 } });
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, result: null, error: 'nothing to scroll' });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([{ error: 'nothing to scroll' }]);
    next.finish();
    await live.toEnd();
  });

  it.each<[string, object, unknown]>([
    ['has no result', {}, null],
    ['has no result and no error', { error: null }, null],
    ['has only an error', { error: 'nothing to scroll' }, { error: 'nothing to scroll' }],
    ['has an error without a text', { error: '' }, { error: 'scroll failed in the page.' }],
    ['returns a failure as a value', { result: { success: false, error: 'x' } }, expect.anything()],
  ])('whose tool_result %s ends the call', async (_, outcome, expected) => {
    const { socket, turn, live } = await begin();
    turn.call({ name: 'scroll', input: { by: 3 } });
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, ...outcome });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([expected]);
    next.finish();
    const frames = await live.toEnd();
    const { status } = frames.findLast(({ event }) => event === 'tool_call')?.data ?? {};
    expect(status).toBe(typeof Object(outcome).error === 'string' ? 'error' : 'done');
  });

  it('keeps the beginning of a long error of a tool_result', async () => {
    const { socket, turn, live } = await begin();
    turn.call({ name: 'scroll', input: { by: 3 } });
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, error: `stuck ${'x'.repeat(10_000)}` });
    const next = await test.model.next();
    expect(resultsIn(next)[0].error).toMatch(/^stuck x{100}/);
    next.finish();
    await live.toEnd();
  });

  it('waits for a page that is connecting', async () => {
    const sessionId = await openSession(test.alice);
    const live = await stream(test.alice, sessionId, page);
    (await test.model.next()).call({ name: 'scroll', input: { by: 3 } });
    await live.untilEvent('browser_tool_call');
    const socket = await joinSession(test.alice, sessionId);
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, result: 'late but there' });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual(['late but there']);
    next.finish();
    await live.toEnd();
  });

  it('is called in parallel with others', async () => {
    const { socket, turn, live } = await begin();
    const calls = [1, 2, 3].map((by) => ({ name: 'scroll', input: { by } }));
    turn.call(...calls);
    for (const by of [3, 1, 2]) {
      const call = await socket.until('browser_tool_call', ({ args }) => args.by === by);
      socket.socket.emit('tool_result', { toolCallId: call.toolCallId, result: by * 10 });
    }
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([10, 20, 30]);
    next.finish();
    await live.toEnd();
  });

  it('ends with its turn', async () => {
    const { sessionId, socket, turn, live } = await begin();
    turn.call({ name: 'scroll', input: { by: 3 } });
    await socket.until('browser_tool_call');
    await test.alice.request('POST', '/messages/abort', { body: { sessionId } });
    expect((await live.toEnd()).at(-1)?.data.status).toBe('aborted');
  });
});

describe('tool_result and action_call_result', () => {
  it('are accepted once, from the user and session of the call', async () => {
    const { sessionId, socket, turn, live } = await begin();
    const bob = new TestUser(test.host);
    const foreign = await joinSession(bob, await openSession(bob));
    const elsewhere = await joinSession(test.alice, await openSession(test.alice));
    turn.call({ name: 'scroll', input: { by: 3 } });
    const { toolCallId } = await socket.until('browser_tool_call');
    for (const stranger of [foreign, elsewhere]) {
      stranger.socket.emit('tool_result', { toolCallId, result: 'forged' });
      stranger.socket.emit('action_call_result', { toolCallId, sessionId, result: 'forged' });
      // Events of one socket are handled in their order, so the forged ones have been.
      await stranger.ask('ping', 'pong');
    }
    socket.socket.emit('action_call_result', { toolCallId, sessionId, result: 'the wrong kind' });
    socket.socket.emit('tool_result', { toolCallId, result: 'first' });
    socket.socket.emit('tool_result', { toolCallId, result: 'second' });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual(['first']);
    next.finish();
    await live.toEnd();
  });

  it('of an action must name the session', async () => {
    const { sessionId, socket, turn, live } = await begin();
    turn.call({ name: 'chart', input: {} });
    const { toolCallId } = await socket.until('action_call');
    const emit = (named: string, result: string) =>
      socket.socket.emit('action_call_result', { sessionId: named, toolCallId, result });
    emit(await openSession(test.alice), 'elsewhere');
    emit(sessionId, 'here');
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual(['here']);
    next.finish();
    await live.toEnd();
  });

  it('that are invalid are reported to the model at once', async () => {
    const { socket, turn, live } = await begin();
    turn.call({ name: 'scroll', input: { by: 3 } });
    const { toolCallId } = await socket.until('browser_tool_call');
    socket.socket.emit('tool_result', { toolCallId, result: 1, error: { no: 'text' } });
    const next = await test.model.next();
    expect(resultsIn(next)[0].error).toContain('invalid result');
    next.finish();
    await live.toEnd();
  });
});

describe('an action', () => {
  it('is sent as action_call, executed in the page, and rendered', async () => {
    const { sessionId, socket, turn, live } = await begin();
    turn.say('Look:');
    turn.call({ name: 'chart', input: { of: 'rain' } });
    const call = await socket.until('action_call');
    expect(call).toMatchObject({ toolName: 'chart', args: { of: 'rain' }, status: 'isRunning' });
    const { toolCallId } = call;
    socket.socket.emit('action_call_result', { sessionId, toolCallId, result: { shown: true } });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([{ shown: true }]);
    next.answer('There.');
    const frames = await live.toEnd();
    expect(frames.filter(({ event }) => event === 'tool_call')).toEqual([]);
    expect(
      frames.filter(({ event }) => event === 'action_call').map(({ data }) => data.status),
    ).toEqual(['isRunning', 'done']);
    const { payload } = await socket.until('render_component');
    expect(payload).toMatchObject({ componentName: 'chart', args: { of: 'rain' }, status: 'done' });
    expect(socket.all('action_call')).toHaveLength(1);
    const { body } = await test.alice.request('GET', `/messages/${sessionId}`);
    const [question, answer] = body.messages;
    expect(answer.toolCalls).toMatchObject([{ name: 'chart', status: 'done' }]);
    expect(answer.parentId).toBe(question.id);
    expect(answer.parts).toMatchObject([
      { type: 'text', text: 'Look:' },
      { type: 'tool-call', call: { name: 'chart', status: 'done' } },
      { type: 'component', component: { name: 'chart', args: { of: 'rain' } } },
      { type: 'text', text: '\n\nThere.' },
    ]);
  });

  it.each<[string, object]>([
    ['nothing', {}],
    ['null', { result: null }],
  ])('whose action_call_result holds %s has succeeded, and is rendered', async (_, outcome) => {
    const { sessionId, socket, turn, live } = await begin();
    turn.call({ name: 'chart', input: {} });
    const { toolCallId } = await socket.until('action_call');
    socket.socket.emit('action_call_result', { sessionId, toolCallId, ...outcome });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([null]);
    next.finish();
    const frames = await live.toEnd();
    expect(frames.findLast(({ event }) => event === 'action_call')?.data.status).toBe('done');
    expect(frames.some(({ event }) => event === 'render_component')).toBe(true);
  });

  it.each<[string, object]>([
    ['error', { error: 'no canvas' }],
    ['result', { result: { success: false, error: 'no canvas' } }],
    ['both', { result: { success: false, error: 'no canvas' }, error: 'no canvas' }],
  ])('that failed by its %s is an error, and nothing is rendered', async (_, outcome) => {
    const { sessionId, socket, turn, live } = await begin();
    turn.call({ name: 'chart', input: {} });
    const { toolCallId } = await socket.until('action_call');
    socket.socket.emit('action_call_result', { sessionId, toolCallId, ...outcome });
    const next = await test.model.next();
    expect(resultsIn(next)).toEqual([{ error: 'no canvas' }]);
    next.finish();
    const frames = await live.toEnd();
    expect(frames.some(({ event }) => event === 'render_component')).toBe(false);
    expect(frames.findLast(({ event }) => event === 'action_call')?.data.status).toBe('error');
  });
});
