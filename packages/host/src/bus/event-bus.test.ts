import { expect, it } from 'vitest';
import {
  formatPosition,
  isAfter,
  MemoryEventBus,
  parsePosition,
  type ServerEvent,
} from './event-bus.js';

const session = { owner: 'did:key:alice', sessionId: 's1' };
const event = (step: string): ServerEvent => ({
  event: 'router_update',
  payload: { sessionId: 's1', requestId: 'r1', step },
});

it('MemoryEventBus delivers events to all listeners of a session in order, and to no others', () => {
  const bus = new MemoryEventBus();
  const heard: string[] = [];
  const listen = (name: string, place = session) =>
    bus.subscribe(place, ({ payload }) =>
      heard.push(`${name} ${'step' in payload && payload.step}`),
    );
  listen('one');
  listen('two');
  listen('other session', { ...session, sessionId: 's2' });
  listen('other user', { ...session, owner: 'did:key:bob' });
  bus.publish(session, event('a'));
  bus.publish(session, event('b'));
  expect(heard).toEqual(['one a', 'two a', 'one b', 'two b']);
});

it('MemoryEventBus removes listeners, even during delivery', () => {
  const bus = new MemoryEventBus();
  const heard: string[] = [];
  const leave = bus.subscribe(session, () => {
    heard.push('first');
    leave();
    leaveSecond();
  });
  const leaveSecond = bus.subscribe(session, () => heard.push('second'));
  bus.publish(session, event('a'));
  bus.publish(session, event('b'));
  expect(heard).toEqual(['first']);
});

it('parsePosition reads what formatPosition writes', () => {
  expect(parsePosition(formatPosition({ turn: 12, seq: 345 }))).toEqual({ turn: 12, seq: 345 });
});

it.each([
  undefined,
  null,
  7,
  {},
  '',
  '1',
  '1.',
  '.1',
  '-1.2',
  '1.2.3',
  ' 1.2',
  `${'9'.repeat(16)}.1`,
])('parsePosition rejects %j', (text) => {
  expect(parsePosition(text)).toBeUndefined();
});

it('isAfter compares by turn, then by frame', () => {
  expect(isAfter({ turn: 2, seq: 1 }, { turn: 1, seq: 9 })).toBe(true);
  expect(isAfter({ turn: 1, seq: 10 }, { turn: 1, seq: 9 })).toBe(true);
  expect(isAfter({ turn: 1, seq: 9 }, { turn: 1, seq: 9 })).toBe(false);
  expect(isAfter({ turn: 1, seq: 9 }, { turn: 2, seq: 1 })).toBe(false);
});
