import { pino } from 'pino';
import { expect, it } from 'vitest';
import type { StoredRules } from '../store/rules-store.js';
import { findEffect, LiveRules } from './user-rules.js';

const logger = pino({ level: 'silent' });
const TOOL = { tool: 'send_mail', plugin: 'mail' };
const ABILITY = { can: 'store/write' };

it('LiveRules blocks everything while changed rules cannot be read, then applies them', async () => {
  const states: (StoredRules | undefined | Error)[] = [undefined, new Error('away')];
  const allow = { cid: 'b', rules: [{ match: 'send_mail', effect: 'ask' }] };
  let onChange = () => {};
  const rules = new LiveRules({
    load: async () => {
      const state = states.length > 0 ? states.shift() : (allow as unknown as StoredRules);
      if (state instanceof Error) throw state;
      return state;
    },
    watch: (_, listener) => {
      onChange = listener;
      return () => {};
    },
    logger,
  });
  await rules.reload();
  const effects = () => [findEffect(rules.rules, TOOL), findEffect(rules.rules, ABILITY)];
  expect(effects()).toEqual(['allow', 'allow']);
  const seen: unknown[] = [];
  rules.onChange(() => seen.push(effects()));
  onChange();
  await expect
    .poll(() => seen)
    .toEqual([
      ['block', 'block'],
      ['ask', 'allow'],
    ]);
  rules.close();
});

it('LiveRules blocks everything while the store does not answer, and ignores an answer that comes after a later one', async () => {
  const waiting: ((stored: StoredRules | undefined) => void)[] = [];
  let onChange = () => {};
  const rules = new LiveRules({
    load: () => new Promise((resolve) => waiting.push(resolve)),
    watch: (_, listener) => {
      onChange = listener;
      return () => {};
    },
    logger,
  });
  const answer = (index: number, effect: 'ask' | 'allow') =>
    waiting[index]?.({
      cid: effect,
      rules: [{ match: 'send_mail', effect }],
    } as unknown as StoredRules);
  const first = rules.reload();
  answer(0, 'allow');
  await first;
  expect(findEffect(rules.rules, TOOL)).toBe('allow');
  onChange();
  await expect.poll(() => findEffect(rules.rules, TOOL)).toBe('block');
  await expect.poll(() => waiting.length).toBe(3);
  answer(2, 'ask');
  await expect.poll(() => findEffect(rules.rules, TOOL)).toBe('ask');
  answer(1, 'allow');
  await new Promise(setImmediate);
  expect(findEffect(rules.rules, TOOL)).toBe('ask');
  rules.close();
});
