import type { ReplyPart } from '@sibyl/protocol';
import { expect, test } from 'vitest';
import { addPart, emptyTurn, type Turn } from './turn.js';

const ids = { sessionId: 's', requestId: 'q' };
const timestamp = '2026-01-02T03:04:05.678Z';
const say = (content: string): ReplyPart => ({ event: 'message', data: { content, timestamp } });
const run = (more: object = {}): ReplyPart => ({
  event: 'run',
  data: { ...ids, runId: 'r', ...more },
});
const add = (parts: readonly ReplyPart[], turn: Turn = emptyTurn) => parts.reduce(addPart, turn);

test('addPart appends text and reasoning', () => {
  const turn = add([
    run(),
    { event: 'reasoning', data: { ...ids, reasoning: 'hm', isComplete: false, timestamp } },
    { event: 'reasoning', data: { ...ids, reasoning: '', isComplete: true, timestamp } },
    say('Hel'),
    say('lo'),
    { event: 'done', data: { runId: 'r', messageId: 'm', status: 'finished' } },
  ]);
  expect(turn).toEqual({
    ...emptyTurn,
    ...{ runId: 'r', requestId: 'q', messageId: 'm', status: 'finished' },
    ...{ text: 'Hello', reasoning: 'hm' },
    parts: [
      { type: 'reasoning', text: 'hm' },
      { type: 'text', text: 'Hello' },
    ],
  });
});

test('addPart keeps parts in the order in which they began', () => {
  const call = { ...ids, toolName: 'look', args: {}, eventId: '1' };
  const turn = add([
    run(),
    say('First '),
    { event: 'tool_call', data: { ...call, status: 'isRunning' } },
    say('then'),
    { event: 'tool_call', data: { ...call, status: 'done', output: '"ok"' } },
    say(' last'),
  ]);
  expect(turn.parts).toMatchObject([
    { type: 'text', text: 'First ' },
    { type: 'call', call: { id: '1', status: 'done' } },
    { type: 'text', text: 'then last' },
  ]);
  const lost = { runId: 'r', status: 'interrupted', partialText: 'First the' } as const;
  expect(add([{ event: 'done', data: lost }], turn).parts).toMatchObject([
    { type: 'text', text: 'First ' },
    { type: 'call' },
    { type: 'text', text: 'the' },
  ]);
});

test('addPart continues a turn as another run after a pause, and repeats it from the beginning', () => {
  const paused = add([run(), say('Before. ')]);
  const resumed = run({ runId: 'r2', resumed: true, partialLength: 8 });
  expect(add([resumed, say('After.')], paused).text).toBe('Before. After.');
  expect(add([run({ runId: 'r2' }), say('Again.')], paused).text).toBe('Again.');
});

test('addPart keeps the status `waiting` until the second frame', () => {
  expect(add([run()]).status).toBe('waiting');
  expect(add([run(), say('x')]).status).toBe('running');
});

test('addPart removes text that a crash has lost', () => {
  const seen = add([run(), say('stored, '), say('lost')]);
  const resumed = add([run({ resumed: true, partialLength: 8 })], seen);
  expect(resumed.text).toBe('stored, ');
  const done = { runId: 'r', status: 'interrupted', partialText: 'stored, ' } as const;
  expect(add([{ event: 'done', data: done }], resumed)).toMatchObject({
    text: 'stored, ',
    status: 'interrupted',
  });
});

test('addPart replaces the text when a resumed run repeats the whole answer', () => {
  const seen = add([run(), say('the beg')]);
  const rest = [run({ resumed: true, partialLength: 0 }), say('the beginning and the end')];
  expect(add(rest, seen).text).toBe('the beginning and the end');
});

test('addPart merges the events of a call', () => {
  const call = { ...ids, toolName: 'paint', args: { color: 'red' } };
  const turn = add([
    { event: 'tool_call', data: { ...call, eventId: '1', status: 'isRunning' } },
    { event: 'browser_tool_call', data: { ...call, toolCallId: '1' } },
    { event: 'action_call', data: { ...call, toolCallId: '2', status: 'isRunning' } },
    { event: 'tool_call', data: { ...call, eventId: '1', status: 'done', output: '"ok"' } },
    { event: 'action_call', data: { ...call, toolCallId: '2', status: 'error', error: 'no' } },
  ]);
  const shown = { name: 'paint', args: { color: 'red' } };
  expect(turn.calls).toEqual([
    { ...shown, id: '1', kind: 'browser-tool', status: 'done', output: '"ok"' },
    { ...shown, id: '2', kind: 'action', status: 'error', error: 'no' },
  ]);
});

test('addPart keeps components, steps, warnings and the error', () => {
  const component = { ...ids, eventId: 'c', componentName: 'table' };
  const step = { ...ids, to: 'writer', step: 'enter' };
  const warning = { ...ids, code: 'tool_left_out', message: 'left out', timestamp };
  const error = { ...ids, error: 'no', kind: 'server', retryable: true, timestamp } as const;
  const turn = add([
    { event: 'render_component', data: { ...component, status: 'isRunning' } },
    { event: 'render_component', data: { ...component, status: 'done' } },
    { event: 'router_update', data: step },
    { event: 'warning', data: warning },
    { event: 'message_cache_invalidation', data: { ...ids, status: 'done' } },
    { event: 'error', data: error },
  ]);
  expect(turn).toMatchObject({
    components: [{ ...component, status: 'done' }],
    steps: [step],
    warnings: [warning],
    error,
  });
});

test('addPart ignores unknown events', () => {
  const unknown = { event: 'later', data: {} } as never as ReplyPart;
  expect(add([unknown])).toEqual({ ...emptyTurn, status: 'running' });
});
