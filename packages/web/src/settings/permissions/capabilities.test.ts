import type { DelegationInfo, PluginInfo } from '@sibyl/client';
import { describe, expect, it } from 'vitest';
import { findCurrent, inDays, isGranted, listAsked } from './capabilities.js';

const user = 'did:key:zUser';

describe('listAsked', () => {
  it('replaces {user} with the identity of the user', () => {
    const permission = { can: 'claim/read', with: '{user}', title: 'Read claims', reason: 'Why' };
    const plugin = { name: 'chain', permissions: [permission] } as unknown as PluginInfo;
    const other = { name: 'other' } as unknown as PluginInfo;
    expect(listAsked([plugin, other], user)).toMatchObject([
      { title: 'Read claims', capability: { can: 'claim/read', with: user } },
    ]);
  });
});

describe('isGranted', () => {
  it.each([
    ['claim/read', user, true],
    ['claim/*', user, true],
    ['*', user, true],
    ['claim/*', 'did:key:zOther', false],
    ['cla*', user, false],
    ['claim/submit', user, false],
    ['claim/read', 'did:key:*', true],
  ])('%s at %s covers claim/read: %s', (can, resource, expected) => {
    expect(isGranted({ can: 'claim/read', with: user }, [{ can, with: resource }])).toBe(expected);
  });
});

describe('findCurrent', () => {
  it('ignores an expired delegation, and those that are not current', () => {
    const info = (more: Partial<DelegationInfo>) => more as DelegationInfo;
    expect(findCurrent([info({ isCurrent: true, expiration: 1 })])).toBeUndefined();
    expect(findCurrent([info({ isCurrent: false })])).toBeUndefined();
    expect(findCurrent([info({ isCurrent: true, expiration: inDays(1) })])).toBeDefined();
    expect(findCurrent([info({ isCurrent: true })])).toBeDefined();
  });
});
