import { expect, it } from 'vitest';
import { parseRoute, toHash } from './router.js';

it.each([
  ['#/', { name: 'welcome' }],
  ['#/s/01ABC-x', { name: 'conversation', sessionId: '01ABC-x' }],
  ['#/s/01ABC/m1', { name: 'conversation', sessionId: '01ABC', messageId: 'm1' }],
  ['#/settings/key', { name: 'settings', screen: 'key' }],
] as const)('parseRoute and toHash agree about %s', (hash, route) => {
  expect(parseRoute(hash)).toEqual(route);
  expect(toHash(route)).toBe(hash);
});

it.each(['', '#', '#/s/', '#/s/a b', '#/settings/', '#/else'])(
  'parseRoute shows the welcome screen for %j',
  (hash) => expect(parseRoute(hash)).toEqual({ name: 'welcome' }),
);
