import { expect, it } from 'vitest';
import { MemoryEventBus } from './memory-event-bus.js';
import type { ServerEvent } from './server-event.js';

const room = { owner: 'did:key:alice', sessionId: 's1' };
const event = (step: string): ServerEvent => ({
  event: 'router_update',
  payload: { sessionId: 's1', requestId: 'r1', step },
});

it('tells everybody in the room, in order, and nobody else', () => {
  const bus = new MemoryEventBus();
  const heard: string[] = [];
  const listen = (name: string, place = room) =>
    bus.subscribe(place, ({ payload }) =>
      heard.push(`${name} ${'step' in payload && payload.step}`),
    );
  listen('one');
  listen('two');
  listen('other session', { ...room, sessionId: 's2' });
  listen('other user', { ...room, owner: 'did:key:bob' });
  bus.publish(room, event('a'));
  bus.publish(room, event('b'));
  expect(heard).toEqual(['one a', 'two a', 'one b', 'two b']);
});

it('forgets those who left, also while it is telling', () => {
  const bus = new MemoryEventBus();
  const heard: string[] = [];
  const leave = bus.subscribe(room, () => {
    heard.push('first');
    leave();
    leaveSecond();
  });
  const leaveSecond = bus.subscribe(room, () => heard.push('second'));
  bus.publish(room, event('a'));
  bus.publish(room, event('b'));
  expect(heard).toEqual(['first']);
});
