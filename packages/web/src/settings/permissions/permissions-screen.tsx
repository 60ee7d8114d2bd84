import { useOracle, useResource } from '@sibyl/client/react';
import { useCallback } from 'react';
import { t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Failure, PageHead } from '../parts.js';
import { AccessKeys } from './access-keys.js';
import { AskedFor, OtherPermission } from './asked-for.js';
import { findCurrent, type GrantTerms, listAsked, type PermissionData } from './capabilities.js';
import { GrantedNow } from './granted-now.js';
import { Rules } from './rules.js';

/** What the oracle may do in the user's name. */
export function PermissionsScreen() {
  const { card, signer } = usePage();
  const { value, error, refresh, replace } = usePermissions();
  const name = card.name;
  const current = value && findCurrent(value.delegations);
  return (
    <>
      <PageHead
        title={t('settings.permissions.title', { name })}
        lede={t('settings.permissions.lede', { name })}
      />
      <Failure error={error} onRetry={refresh} />
      {value && (
        <>
          <AskedFor
            asked={listAsked(value.plugins, signer.did)}
            current={current}
            onGrant={replace}
          />
          <GrantedNow data={value} current={current} onReplace={replace} onChange={refresh} />
          <OtherPermission current={current} onGrant={replace} />
          <Rules plugins={value.plugins} />
          <AccessKeys />
        </>
      )}
    </>
  );
}

function usePermissions() {
  const client = useOracle();
  const load = useCallback(
    async (signal: AbortSignal): Promise<PermissionData> => {
      const [delegations, plugins, schedules] = await Promise.all([
        client.delegation.list({ signal }),
        client.plugins.list({ signal }),
        // An oracle without schedules has no such route.
        client.schedules.list({ signal }).catch(() => []),
      ]);
      return { delegations, plugins, schedules };
    },
    [client],
  );
  const { value, error, refresh } = useResource(load);
  /** The oracle acts with one delegation, so a change is a new one with everything that remains. */
  const replace = useCallback(
    async ({ capabilities, expiration }: GrantTerms) => {
      const before = findCurrent(await client.delegation.list());
      if (capabilities.length > 0) await client.delegation.grant({ capabilities, expiration });
      if (before) await client.delegation.revoke(before.cid);
      await refresh();
    },
    [client, refresh],
  );
  return { value, error, refresh, replace };
}
