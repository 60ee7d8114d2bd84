import { signingBytes } from '../codec/ucan-block.js';
import type { DidKeys, DidResolver } from '../did/did-resolver.js';
import { refuse, type UcanFault } from '../fault.js';
import { named } from '../gate/read-token.js';
import type { Token, Ucan } from '../gate/token.js';
import { isSoundPublicKey, verifyEd25519 } from '../keys/ed25519.js';
import type { Result } from '../result.js';

/** The key that signed each UCAN of a chain, by CID. */
export type SigningKeys = ReadonlyMap<string, Uint8Array>;

export interface IssuerLookup {
  readonly resolver: DidResolver;
  /** False refuses every issuer whose keys are not in its own DID. */
  readonly allowLookup: boolean;
}

/** Verifies every signature of the chain; those that need no lookup first, to spare the network. */
export async function verifySignatures(
  token: Token,
  lookup: IssuerLookup,
): Promise<Result<SigningKeys, UcanFault>> {
  const keysOf = new Map<string, DidKeys>();
  const signingKeys = new Map<string, Uint8Array>();
  const needsLookup = ({ issuer }: Ucan) => Number(!isOffline(issuer));
  for (const ucan of [...token.ucans.values()].sort((a, b) => needsLookup(a) - needsLookup(b))) {
    const known = keysOf.get(ucan.issuer);
    const keys: Result<DidKeys, UcanFault> = known
      ? { ok: known }
      : await resolveIssuer(ucan.issuer, lookup);
    if (keys.error) return { error: named(keys.error, ucan) };
    keysOf.set(ucan.issuer, keys.ok);
    const key = findSigningKey(ucan, keys.ok);
    if (key.error) return { error: named(key.error, ucan) };
    signingKeys.set(ucan.cid, key.ok);
  }
  return { ok: signingKeys };
}

/** A did:key holds its own key. */
const isOffline = (did: string): boolean => did.startsWith('did:key:');

async function resolveIssuer(
  did: string,
  { resolver, allowLookup }: IssuerLookup,
): Promise<Result<DidKeys, UcanFault>> {
  if (!allowLookup && !isOffline(did)) return refuse('lookup_refused', did);
  try {
    const keys = await resolver.resolve(did);
    return keys.error ? refuse(keys.error.code, keys.error.detail) : { ok: keys.ok };
  } catch {
    return refuse('did_unavailable', `the resolver failed for ${did}`);
  }
}

function findSigningKey(ucan: Ucan, keys: DidKeys): Result<Uint8Array, UcanFault> {
  const sound = keys.filter(isSoundPublicKey);
  if (sound.length === 0) return refuse('weak_key', `${keys.length} keys, none sound`);
  const message = signingBytes(ucan);
  const key = sound.find((candidate) => verifyEd25519(candidate, message, ucan.signature));
  return key ? { ok: key } : refuse('signature_invalid', 'no key of the issuer fits');
}
