import type { Result } from '@sibyl/protocol';

/** Why a DID gave no keys; only `did_unavailable` and `did_busy` are worth retrying. */
export interface DidError {
  readonly code:
    | 'did_unsupported'
    | 'did_invalid'
    | 'did_not_found'
    | 'did_deactivated'
    | 'did_unavailable'
    | 'did_busy';
  readonly detail: string;
}

/** The raw Ed25519 public keys (32 bytes each) that may sign for a DID. */
export type DidKeys = readonly Uint8Array[];

/** Finds the signing keys of a DID. */
export interface DidResolver {
  resolve(did: string): Promise<Result<DidKeys, DidError>>;
  /** Whether `resolve` would use the network for this DID now; assumed for all but did:key if absent. */
  needsLookup?(did: string): boolean;
}

/** Refuses a DID; `detail` goes to the log and says what to change. */
export function refuseDid(code: DidError['code'], detail: string): { readonly error: DidError } {
  return { error: { code, detail } };
}

/** The error detail for a did:ixo where no source of those is configured. */
export const IXO_NEEDS = 'did:ixo needs CHAIN_REST_URL or BLOCKSYNC_GRAPHQL_URL';

export interface DidMethods {
  readonly key: DidResolver;
  readonly ixo?: DidResolver | undefined;
  readonly web?: DidResolver | undefined;
}

/** Sends each DID to the resolver of its method; checks the syntax before anything is asked. */
export function createDidResolver({ methods }: { readonly methods: DidMethods }): DidResolver {
  return {
    needsLookup(did) {
      const method = didMethod(did);
      if (method !== 'ixo' && method !== 'web') return false;
      const resolver = methods[method];
      return resolver !== undefined && (resolver.needsLookup?.(did) ?? true);
    },
    async resolve(did) {
      const method = didMethod(did);
      switch (method) {
        case undefined:
          return refuseDid('did_invalid', 'not a DID, or longer than 512 characters');
        case 'key':
          return methods.key.resolve(did);
        case 'ixo':
          return methods.ixo?.resolve(did) ?? refuseDid('did_unsupported', IXO_NEEDS);
        case 'web':
          return methods.web?.resolve(did) ?? refuseDid('did_unsupported', 'did:web is turned off');
        default:
          return refuseDid('did_unsupported', `did:${method} is none of did:key, did:ixo, did:web`);
      }
    },
  };
}

const MAX_DID = 512;
const DID =
  /^did:([a-z0-9]+):(?:[A-Za-z0-9._:-]|%[0-9A-Fa-f]{2})*(?:[A-Za-z0-9._-]|%[0-9A-Fa-f]{2})$/;

/** The method of a well-formed DID without path, query or fragment; undefined for anything else. */
export function didMethod(did: string): string | undefined {
  if (typeof did !== 'string' || did.length > MAX_DID) return undefined;
  return DID.exec(did)?.[1];
}

/** Lookups one resolver has in progress at most by default: each holds a connection to a host that a stranger chose. */
const MAX_PENDING = 50;

/** Lets concurrent lookups of the same DID share one resolution. */
export function createSingleFlight(
  resolve: DidResolver['resolve'],
  maxPending = MAX_PENDING,
): DidResolver['resolve'] {
  const pending = new Map<string, ReturnType<DidResolver['resolve']>>();
  return (did) => {
    const running = pending.get(did);
    if (running) return running;
    if (pending.size >= maxPending) {
      return Promise.resolve(refuseDid('did_busy', `${maxPending} lookups are in progress`));
    }
    const flight = resolve(did).finally(() => pending.delete(did));
    pending.set(did, flight);
    return flight;
  };
}
