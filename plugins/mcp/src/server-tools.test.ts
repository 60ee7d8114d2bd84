import { describe, expect, it } from 'vitest';
import { toolName } from './server-tools.js';

describe('toolName', () => {
  it('keeps a name that every provider accepts', () => {
    expect(toolName('github', 'create_issue')).toBe('github__create_issue');
  });

  it.each([
    ['a character outside the set', 'add.numbers'],
    ['a long name', 'x'.repeat(100)],
    ['another script', '天気'],
  ])('writes %s so that providers accept it', (_, tool) => {
    expect(toolName('demo', tool)).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
    expect(toolName('demo', tool)).toMatch(/^demo__/);
  });

  it('never makes two tools one', () => {
    expect(toolName('demo', 'a.b')).not.toBe(toolName('demo', 'a b'));
    expect(toolName('demo', `${'x'.repeat(80)}1`)).not.toBe(toolName('demo', `${'x'.repeat(80)}2`));
  });
});
