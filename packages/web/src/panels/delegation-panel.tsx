import type { DelegationInfo, Delegations } from '@sibyl/client';
import { useDelegation, useOracle } from '@sibyl/client/react';
import { type FormEvent, useEffect, useState } from 'react';
import { usePage } from '../page/page-context.js';

const DAY_SECONDS = 86_400;
const lifetimes = { '1 hour': 3600, '1 day': DAY_SECONDS, '30 days': 30 * DAY_SECONDS } as const;
type Lifetime = keyof typeof lifetimes;

/** Grants, shows and revokes delegations. */
export function DelegationPanel() {
  const { status, isLoading, error, grant, revoke, refresh } = useDelegation();
  if (isLoading && !status) return <p aria-busy="true">Loading…</p>;
  return (
    <>
      <p>
        A delegation allows this oracle to act for you at other services, within the limits you set
        here. The key in this browser signs it. You can revoke it at any time.
      </p>
      {error && (
        <p className="error" role="alert">
          {error.message}
        </p>
      )}
      {status?.authorized ? (
        <Granted expiration={status.expiration} onRevoke={revoke} />
      ) : (
        <GrantForm onGrant={grant} />
      )}
      <OtherDelegations key={String(status?.authorized)} onChange={refresh} />
    </>
  );
}

interface GrantedProps {
  readonly expiration: number | undefined;
  readonly onRevoke: () => Promise<void>;
}

function Granted({ expiration, onRevoke }: GrantedProps) {
  return (
    <div className="granted">
      <p role="status">
        Granted
        {expiration !== undefined && ` until ${new Date(expiration * 1000).toLocaleString()}`}
      </p>
      <button type="button" className="danger" onClick={() => void onRevoke()}>
        Revoke
      </button>
    </div>
  );
}

/** Delegations besides the current one, such as those of another device. */
function OtherDelegations({ onChange }: { readonly onChange: () => Promise<void> }) {
  const { delegation } = useOracle();
  const [others, setOthers] = useState<readonly DelegationInfo[]>([]);
  const [failure, setFailure] = useState<string>();
  useEffect(() => {
    listOthers(delegation).then(setOthers, (error: Error) => setFailure(error.message));
  }, [delegation]);
  const change = async (work: () => Promise<unknown>) => {
    setFailure(undefined);
    try {
      await work();
      setOthers(await listOthers(delegation));
      await onChange();
    } catch (error) {
      setFailure((error as Error).message);
    }
  };
  return (
    <section className="other-delegations" aria-label="Other delegations">
      {others.length > 0 && <h3>Other delegations</h3>}
      {failure && (
        <p className="error" role="alert">
          {failure}
        </p>
      )}
      <ul>
        {others.map((each) => (
          <li key={each.cid}>
            <p>{describeDelegation(each)}</p>
            <button type="button" onClick={() => void change(() => delegation.revoke(each.cid))}>
              Revoke
            </button>
          </li>
        ))}
      </ul>
      {others.length > 0 && (
        <button
          type="button"
          className="danger"
          onClick={() => void change(() => delegation.revokeAll())}
        >
          Revoke all
        </button>
      )}
    </section>
  );
}

const listOthers = async (delegation: Delegations) =>
  (await delegation.list()).filter(({ isCurrent }) => !isCurrent);

function describeDelegation({ capabilities, expiration }: DelegationInfo): string {
  const granted = capabilities.map(({ can, with: resource }) => `${can} on ${resource}`);
  const expiry =
    expiration === undefined
      ? 'never expires'
      : `expires ${new Date(expiration * 1000).toLocaleString()}`;
  return `${granted.join(', ')}, ${expiry}`;
}

function GrantForm({ onGrant }: { readonly onGrant: ReturnType<typeof useDelegation>['grant'] }) {
  const { signer } = usePage();
  const [can, setCan] = useState('*');
  const [resource, setResource] = useState<string>(signer.did);
  const [lifetime, setLifetime] = useState<Lifetime>('1 day');
  const [failure, setFailure] = useState<string>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setFailure(undefined);
    const expiration = Math.floor(Date.now() / 1000) + lifetimes[lifetime];
    const capabilities = [
      { can: can.trim() as `${string}/${string}`, with: resource.trim() as `${string}:${string}` },
    ];
    await onGrant({ capabilities, expiration }).catch((error: Error) => setFailure(error.message));
  };
  return (
    <form className="fields" onSubmit={submit}>
      <label>
        Action
        <input required value={can} onChange={({ target }) => setCan(target.value)} />
      </label>
      <label>
        Resource
        <input required value={resource} onChange={({ target }) => setResource(target.value)} />
      </label>
      <label>
        Expires after
        <select value={lifetime} onChange={({ target }) => setLifetime(target.value as Lifetime)}>
          {Object.keys(lifetimes).map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      {failure && (
        <p className="error" role="alert">
          {failure}
        </p>
      )}
      <button type="submit" className="primary">
        Grant
      </button>
    </form>
  );
}
