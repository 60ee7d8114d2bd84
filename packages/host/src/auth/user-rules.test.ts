import type { RuleEffect } from '@sibyl/protocol';
import { pino } from 'pino';
import { expect, it } from 'vitest';
import type { StoredRules } from '../store/rules-store.js';
import { findEffect, LiveRules } from './user-rules.js';

const logger = pino({ level: 'silent' });
const TOOL = { tool: 'send_mail', plugin: 'mail' };
const ABILITY = { can: 'store/write' };

const rule = (match: string, effect: RuleEffect) => ({ match, effect });

it.each([
  ['its name', 'send_mail', 'block'],
  ['its name with a kind', 'tool:send_mail', 'block'],
  ['the beginning of its name', 'send_*', 'block'],
  ['every tool', '*', 'block'],
  ['its plugin', 'plugin:mail', 'block'],
  ['the beginning of its plugin', 'plugin:ma*', 'block'],
  ['another tool', 'send_mai', 'allow'],
  ['the beginning of other names', 'read_*', 'allow'],
  ['another plugin', 'plugin:send_mail', 'allow'],
  ['the name of its plugin', 'mail', 'allow'],
  ['abilities', 'can:*', 'allow'],
  ['an ability of its name', 'can:send_mail', 'allow'],
])('findEffect of a tool with a rule for %s: %s', (_, match, effect) => {
  expect(findEffect([rule(match, 'block')], TOOL)).toBe(effect);
});

it.each([
  ['itself', 'can:store/write', 'block'],
  ['all of its kind', 'can:store/*', 'block'],
  ['every ability', 'can:*', 'block'],
  ['another one', 'can:store/read', 'allow'],
  ['a tool of its name', 'tool:store/write', 'allow'],
  ['a plugin of its name', 'plugin:store/write', 'allow'],
])('findEffect of an ability with a rule for %s: %s', (_, match, effect) => {
  expect(findEffect([rule(match, 'block')], ABILITY)).toBe(effect);
});

it('findEffect is that of the first rule that matches', () => {
  const rules = [rule('send_mail', 'ask'), rule('send_*', 'block'), rule('*', 'allow')];
  expect(findEffect(rules, TOOL)).toBe('ask');
  expect(findEffect(rules, { ...TOOL, tool: 'send_file' })).toBe('block');
  expect(findEffect(rules, { ...TOOL, tool: 'read' })).toBe('allow');
  expect(findEffect([], TOOL)).toBe('allow');
});

it('findEffect of an ability that includes others is the strictest of theirs', () => {
  const rules = [rule('can:store/*', 'allow'), rule('can:store/write', 'ask')];
  expect(findEffect(rules, { can: 'store/*' })).toBe('ask');
  expect(findEffect([...rules, rule('can:store/delete', 'block')], { can: '*' })).toBe('block');
  expect(findEffect(rules, { can: 'store/read' })).toBe('allow');
  expect(findEffect([...rules, rule('tool:store/read', 'block')], { can: 'store/*' })).toBe('ask');
});

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
