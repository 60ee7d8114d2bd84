import type { Verifier } from '@sibyl/ucan';
import { expect, it, vi } from 'vitest';
import type { Store } from '../store/store.js';
import { DelegationService } from './delegations.js';

it('DelegationService.status charges the caller for looking up the issuers of the stored delegation', async () => {
  const error = { code: 'cost_refused', detail: 'too many lookups' };
  const verifyDelegation = vi.fn(async () => ({ error }));
  const stored = { ok: { raw: 'token', expiresAt: null } };
  const deps = {
    oracleDid: 'did:key:zOracle',
    verifier: { verifyDelegation } as unknown as Verifier,
    store: { delegations: { get: async () => stored } } as unknown as Store,
  };
  const service = new DelegationService(deps as never);
  const charge = () => undefined;
  const status = service.status({ did: 'did:key:zAlice', charge } as never);
  await expect(status).rejects.toMatchObject({ code: 'rate_limited' });
  expect(verifyDelegation).toHaveBeenCalledWith('token', { charge });
});
