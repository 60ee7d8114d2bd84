import { expect, it } from 'vitest';
import { Listeners } from './listeners.js';

it('Listeners calls those of the key, in order', () => {
  const listeners = new Listeners<string, number>();
  const calls: string[] = [];
  listeners.add('a', (event) => calls.push(`first ${event}`));
  listeners.add('a', (event) => calls.push(`second ${event}`));
  listeners.add('b', () => calls.push('other'));
  listeners.call('a', 1);
  listeners.call('unknown', 2);
  expect(calls).toEqual(['first 1', 'second 1']);
});

it('Listeners forgets a key with its last listener', () => {
  const listeners = new Listeners<string>();
  const stops = [listeners.add('a', () => {}), listeners.add('a', () => {})];
  stops[0]?.();
  expect([listeners.size, listeners.list()]).toEqual([1, ['a']]);
  stops[1]?.();
  stops[1]?.();
  expect([listeners.size, listeners.list()]).toEqual([0, []]);
});

it('Listeners keeps new listeners of a key when an old one is removed again', () => {
  const listeners = new Listeners<string>();
  const stop = listeners.add('a', () => {});
  stop();
  let calls = 0;
  listeners.add('a', () => {
    calls += 1;
  });
  stop();
  listeners.call('a');
  expect(calls).toBe(1);
});

it('Listeners removes one of two registrations of the same function', () => {
  const listeners = new Listeners<string>();
  let calls = 0;
  const listener = () => {
    calls += 1;
  };
  const stop = listeners.add('a', listener);
  listeners.add('a', listener);
  stop();
  listeners.call('a');
  expect(calls).toBe(1);
});

it('Listeners.call skips those removed by another listener, and those added meanwhile', () => {
  const listeners = new Listeners<string>();
  const calls: string[] = [];
  listeners.add('a', () => {
    calls.push('first');
    stop();
    listeners.add('a', () => calls.push('late'));
  });
  const stop = listeners.add('a', () => calls.push('removed'));
  listeners.call('a');
  expect(calls).toEqual(['first']);
});
