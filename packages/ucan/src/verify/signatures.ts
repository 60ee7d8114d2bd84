import type { Result } from '@sibyl/protocol';
import { LruMap, textBytes } from '@sibyl/protocol/lru-map';
import { signingBytes, type Token, type Ucan } from '../codec/ucan.js';
import type { DidKeys, DidResolver } from '../did/did-resolver.js';
import { refuse, type UcanError } from '../errors.js';
import { isSoundPublicKey, verifyEd25519 } from '../keys/signer.js';
import { named } from '../read/read-token.js';

/** What is left to do for a token that passed every local check. */
export interface VerificationCost {
  /** Signatures that were not verified before. */
  readonly signatures: number;
  /** Issuers whose keys have to be asked for over the network. */
  readonly lookups: number;
  /** The length of the token. */
  readonly characters: number;
}

/** Verifies the signatures of chains, and remembers those that will stay valid forever. */
export class SignatureVerifier {
  /** CIDs of UCANs signed by the key in their issuer's did:key: nothing can change that. */
  private readonly proven: LruMap<string, true>;
  private readonly resolver: DidResolver;

  constructor(resolver: DidResolver, maxBytes: number) {
    this.resolver = resolver;
    this.proven = new LruMap({ maxBytes, measure: (_, cid) => textBytes(cid) });
  }

  measure({ text, ucans }: Token): VerificationCost {
    const open = [...ucans.values()].filter(({ cid }) => !this.proven.get(cid));
    const issuers = new Set(open.map(({ issuer }) => issuer));
    return {
      signatures: open.length,
      lookups: [...issuers].filter((did) => this.needsLookup(did)).length,
      characters: text.length,
    };
  }

  /** Verifies every signature of the chain; those that need no lookup first, to spare the network. */
  async verify({ ucans }: Token): Promise<UcanError | undefined> {
    const keysByIssuer = new Map<string, DidKeys>();
    const open = [...ucans.values()].filter(({ cid }) => !this.proven.get(cid));
    const offlineFirst = ({ issuer }: Ucan) => Number(!isOffline(issuer));
    for (const ucan of open.sort((a, b) => offlineFirst(a) - offlineFirst(b))) {
      const known = keysByIssuer.get(ucan.issuer);
      const keys: Result<DidKeys, UcanError> = known
        ? { ok: known }
        : await this.resolveIssuer(ucan.issuer);
      if (keys.error) return named(keys.error, ucan);
      keysByIssuer.set(ucan.issuer, keys.ok);
      const { error } = findSigningKey(ucan, keys.ok);
      if (error) return named(error, ucan);
      if (isOffline(ucan.issuer)) this.proven.set(ucan.cid, true);
    }
    return undefined;
  }

  /** Verifies the signature of one UCAN; returns the key of its issuer that signed. */
  async findKey(ucan: Ucan): Promise<Result<Uint8Array, UcanError>> {
    const keys = await this.resolveIssuer(ucan.issuer);
    return keys.error ? keys : findSigningKey(ucan, keys.ok);
  }

  private needsLookup(did: string): boolean {
    return !isOffline(did) && (this.resolver.needsLookup?.(did) ?? true);
  }

  private async resolveIssuer(did: string): Promise<Result<DidKeys, UcanError>> {
    try {
      const keys = await this.resolver.resolve(did);
      return keys.error ? refuse(keys.error.code, keys.error.detail) : { ok: keys.ok };
    } catch {
      return refuse('did_unavailable', `the resolver failed for ${did}`);
    }
  }
}

/** A did:key holds its own key. */
const isOffline = (did: string): boolean => did.startsWith('did:key:');

function findSigningKey(ucan: Ucan, keys: DidKeys): Result<Uint8Array, UcanError> {
  const sound = keys.filter(isSoundPublicKey);
  if (sound.length === 0) return refuse('weak_key', `${keys.length} keys, none sound`);
  const message = signingBytes(ucan);
  const key = sound.find((each) => verifyEd25519(each, message, ucan.signature));
  return key ? { ok: key } : refuse('signature_invalid', 'no key of the issuer fits');
}
