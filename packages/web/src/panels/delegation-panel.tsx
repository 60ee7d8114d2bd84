import { useDelegation } from '@sibyl/client/react';
import { type FormEvent, useState } from 'react';
import { usePage } from '../page/page-context.js';

const DAY_SECONDS = 86_400;
const lifetimes = { '1 hour': 3600, '1 day': DAY_SECONDS, '30 days': 30 * DAY_SECONDS } as const;
type Lifetime = keyof typeof lifetimes;

/** Lets the oracle act for the user elsewhere: grant, see until when, revoke. */
export function DelegationPanel() {
  const { status, isLoading, error, grant, revoke } = useDelegation();
  if (isLoading && !status) return <p aria-busy="true">Loading…</p>;
  return (
    <>
      <p>
        A delegation lets this oracle act for you at other services, within the limits you sign
        here. It is signed by the key in this browser, and you can take it back at any time.
      </p>
      {error && (
        <p className="fault" role="alert">
          {error.message}
        </p>
      )}
      {status?.authorized ? (
        <Granted expiration={status.expiration} onRevoke={revoke} />
      ) : (
        <GrantForm onGrant={grant} />
      )}
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

function GrantForm({ onGrant }: { readonly onGrant: ReturnType<typeof useDelegation>['grant'] }) {
  const { signer } = usePage();
  const [can, setCan] = useState('*');
  const [resource, setResource] = useState<string>(signer.did);
  const [lifetime, setLifetime] = useState<Lifetime>('1 day');
  const [fault, setFault] = useState<string>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setFault(undefined);
    const expiration = Math.floor(Date.now() / 1000) + lifetimes[lifetime];
    const capabilities = [
      { can: can.trim() as `${string}/${string}`, with: resource.trim() as `${string}:${string}` },
    ];
    await onGrant({ capabilities, expiration }).catch((error: Error) => setFault(error.message));
  };
  return (
    <form className="fields" onSubmit={submit}>
      <label>
        May do
        <input required value={can} onChange={({ target }) => setCan(target.value)} />
      </label>
      <label>
        With
        <input required value={resource} onChange={({ target }) => setResource(target.value)} />
      </label>
      <label>
        For
        <select value={lifetime} onChange={({ target }) => setLifetime(target.value as Lifetime)}>
          {Object.keys(lifetimes).map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      {fault && (
        <p className="fault" role="alert">
          {fault}
        </p>
      )}
      <button type="submit" className="primary">
        Grant
      </button>
    </form>
  );
}
