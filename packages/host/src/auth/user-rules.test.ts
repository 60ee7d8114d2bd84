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
