import { describe, expect, it } from 'vitest';
import { countChanges, isRequired, listRequiredTools, toRules, toSwitches } from './rules.js';

describe('toRules', () => {
  it('returns what toSwitches was made of, with specific rules first', () => {
    const rules = [
      { match: 'plugin:mail', effect: 'ask' },
      { match: 'send_*', effect: 'block' },
      { match: '*', effect: 'ask' },
    ] as const;
    const switches = toSwitches(rules, ['mail', 'weather']);
    expect(switches.plugins).toEqual({ mail: 'ask', weather: 'allow' });
    expect(toRules(switches)).toEqual([rules[1], rules[0], rules[2]]);
  });

  it('countChanges counts switches, other rules, and those that were removed', () => {
    const before = toSwitches([{ match: 'send_*', effect: 'ask' }], ['mail']);
    expect(countChanges(before, before)).toBe(0);
    expect(countChanges(before, { ...before, plugins: { mail: 'block' } })).toBe(1);
    expect(countChanges(before, { ...before, others: [] })).toBe(1);
    const others = [{ match: 'send_*', effect: 'block' as const }];
    expect(countChanges(before, { ...before, others })).toBe(1);
  });
});

describe('isRequired', () => {
  it.each([
    [['*'], true],
    [['plugin:*'], true],
    [['plugin:ma*'], true],
    [['plugin:mail'], true],
    [['plugin:mailer'], false],
    [['mail', 'can:mail/*'], false],
    [[], false],
  ])('the operator requires %j: %s', (operator, expected) => {
    expect(isRequired(operator, 'mail')).toBe(expected);
  });

  it('listRequiredTools names tools and abilities only', () => {
    expect(listRequiredTools(['*', 'plugin:mail', 'tool:send', 'pay', 'can:store/*'])).toEqual([
      'send',
      'pay',
      'store/*',
    ]);
  });
});
