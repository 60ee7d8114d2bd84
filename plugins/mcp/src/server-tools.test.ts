import { describe, expect, it } from 'vitest';
import { buildToolName } from './server-tools.js';

describe('buildToolName', () => {
  it('keeps a name that every provider accepts', () => {
    expect(buildToolName('github', 'create_issue')).toBe('github__create_issue');
  });

  it.each([
    ['a character outside the set', 'add.numbers'],
    ['a long name', 'x'.repeat(100)],
    ['another script', '天気'],
  ])('writes %s so that providers accept it', (_, tool) => {
    expect(buildToolName('demo', tool)).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
    expect(buildToolName('demo', tool)).toMatch(/^demo__/);
  });

  it('never makes two tools one', () => {
    expect(buildToolName('demo', 'a.b')).not.toBe(buildToolName('demo', 'a b'));
    expect(buildToolName('demo', `${'x'.repeat(80)}1`)).not.toBe(
      buildToolName('demo', `${'x'.repeat(80)}2`),
    );
  });
});
