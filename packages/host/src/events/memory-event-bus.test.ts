import { expect, it } from 'vitest';
import { MemoryEventBus } from './memory-event-bus.js';
import type { ServerEvent } from './server-event.js';

const audience = { owner: 'did:key:alice', sessionId: 's1' };
const event = (step: string): ServerEvent => ({
  event: 'router_update',
  payload: { sessionId: 's1', requestId: 'r1', step },
});

it('tells the whole audience, in order, and nobody else', () => {
  const bus = new MemoryEventBus();
  const heard: string[] = [];
  const listen = (name: string, place = audience) =>
    bus.subscribe(place, ({ payload }) =>
      heard.push(`${name} ${'step' in payload && payload.step}`),
    );
  listen('one');
  listen('two');
  listen('other session', { ...audience, sessionId: 's2' });
  listen('other user', { ...audience, owner: 'did:key:bob' });
  bus.publish(audience, event('a'));
  bus.publish(audience, event('b'));
  expect(heard).toEqual(['one a', 'two a', 'one b', 'two b']);
});

it('forgets those who left, also while it is telling', () => {
  const bus = new MemoryEventBus();
  const heard: string[] = [];
  const leave = bus.subscribe(audience, () => {
    heard.push('first');
    leave();
    leaveSecond();
  });
  const leaveSecond = bus.subscribe(audience, () => heard.push('second'));
  bus.publish(audience, event('a'));
  bus.publish(audience, event('b'));
  expect(heard).toEqual(['first']);
});
