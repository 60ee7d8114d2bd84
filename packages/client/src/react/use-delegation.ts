import type { DelegationStatus } from '@sibyl/protocol';
import { useCallback } from 'react';
import type { Delegations, DelegationTerms } from '../oracle-client.js';
import { useOracle } from './oracle-provider.js';
import { type Loaded, useLoaded } from './use-loaded.js';

export interface UseDelegation extends Loaded {
  readonly status: DelegationStatus | undefined;
  readonly grant: Delegations['grant'];
  readonly revoke: Delegations['revoke'];
}

/** What the user lets the oracle do on his behalf. */
export function useDelegation(): UseDelegation {
  const { delegation } = useOracle();
  const load = useCallback((signal: AbortSignal) => delegation.status({ signal }), [delegation]);
  const { value: status, ...loaded } = useLoaded(load);
  const { refresh } = loaded;
  const grant = useCallback(
    async (terms: DelegationTerms) => {
      const stored = await delegation.grant(terms);
      await refresh();
      return stored;
    },
    [delegation, refresh],
  );
  const revoke = useCallback(
    async (cid?: string) => {
      await delegation.revoke(cid);
      await refresh();
    },
    [delegation, refresh],
  );
  return { status, grant, revoke, ...loaded };
}
