import { OracleError, type ToolContext } from '@sibyl/plugin-kit';
import { describe, expect, it, vi } from 'vitest';
import type { Connection } from './connection.js';
import { buildToolName, type Identity, listServerTools } from './server-tools.js';

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

it('listServerTools calls no protected tool while the use of its invocation cannot be stored, and says why', async () => {
  const call = vi.fn();
  const tool = { name: 'pay', inputSchema: { type: 'object' as const } };
  const connection = {
    name: 'safe',
    server: { protected: ['pay'], timeoutMs: 1000 },
    tools: async () => [tool],
    call,
  };
  const acceptOnce = async () => {
    throw new OracleError('store_unavailable', { retryAfterSeconds: 5 });
  };
  const identity = { oracle: { did: 'did:key:zOracle' }, ucan: { acceptOnce } };
  const turn = { request: { mcpInvocations: { pay: 'signed' } }, user: { did: 'did:key:zUser' } };
  const [pay] = await listServerTools(
    connection as unknown as Connection,
    identity as unknown as Identity,
  );
  const calling = pay?.run({}, turn as unknown as ToolContext);
  await expect(calling).rejects.toMatchObject({ code: 'store_unavailable', retryAfterSeconds: 5 });
  expect(call).not.toHaveBeenCalled();
});
