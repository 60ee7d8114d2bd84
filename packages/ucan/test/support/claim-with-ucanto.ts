import * as core from '@ucanto/core';
import type { Delegation, ParsedCapability, Principal } from '@ucanto/interface';
import { ed25519 } from '@ucanto/principal';
import { capability as capabilityParser, claim } from '@ucanto/validator';
import type { Capability, Token, Ucan } from '../../src/codec/ucan.js';
import { didFromPublicKey } from '../../src/did/did-key.js';
import { covers, findProofs } from '../../src/verify/rules.js';

/** The key that signed each UCAN of a chain, by CID. */
type SigningKeys = ReadonlyMap<string, Uint8Array>;

/** Why ucanto finds no path from a capability of the root of the chain to a UCAN without proofs, if so. */
export async function claimWithUcanto(
  token: Token,
  keys: SigningKeys,
): Promise<string | undefined> {
  try {
    const root = toView(token.root, token);
    for (const [index, capability] of token.root.capabilities.entries()) {
      const result = await claim(
        createParser(capability, index),
        [root],
        claimOptions(token, keys),
      );
      if (result.error) return result.error.message;
    }
    return undefined;
  } catch (cause) {
    return String(cause);
  }
}

/** A UCAN as ucanto sees it, without its time bounds: those were checked here, with our clock. */
function toView(ucan: Ucan, token: Token): Delegation {
  const view = core.Delegation.create({
    root: { cid: core.parseLink(ucan.cid) as never, bytes: ucan.bytes as never },
    blocks: new Map(),
  });
  const data = Object.create(core.UCAN.decode(ucan.bytes as never), {
    expiration: { value: Number.POSITIVE_INFINITY },
    notBefore: { value: undefined },
  });
  const proofs = findProofs(ucan, token.ucans).map((proof) => toView(proof, token));
  return Object.defineProperties(view, { data: { value: data }, proofs: { value: proofs } });
}

/** Matches the capability at this place of the root and what may grant it in the proofs. */
function createParser({ can }: Capability, index: number) {
  const anything = { read: (input: unknown) => ({ ok: input }) };
  const parser = capabilityParser({
    can: can as never,
    with: anything as never,
    nb: anything as never,
    derives: (claimed: unknown, granted: unknown) =>
      covers(granted as Capability, claimed as Capability)
        ? { ok: {} }
        : { error: new core.Failure('the proof does not cover it') },
  });
  const select: typeof parser.select = (sources) => parser.select(sources.slice(index, index + 1));
  return Object.assign(Object.create(parser) as typeof parser, { select });
}

function claimOptions(token: Token, keys: SigningKeys) {
  return {
    authority: toVerifier(token.root.audience),
    principal: { parse: toVerifier },
    canIssue: (capability: unknown) => canIssue(capability as ClaimedCapability),
    resolveDIDKey: (did: string) => ({ ok: readSigningKeys(did, token, keys) }),
    validateAuthorization: () => ({ ok: {} }),
  } as never as Parameters<typeof claim>[2];
}

type ClaimedCapability = ParsedCapability & { readonly delegation: Delegation };

/**
 * Only a UCAN without proofs speaks for itself, and none vouches for the signature of another: ucanto
 * accepts an attestation by an authorized issuer instead of a signature.
 */
function canIssue({ can, delegation }: ClaimedCapability): boolean {
  return delegation.proofs.length === 0 && can !== 'ucan/attest';
}

/** Verifies with ucanto's own implementation of Ed25519. */
function toVerifier(did: string): Principal {
  return did.startsWith('did:key:') ? ed25519.Verifier.parse(did) : ({ did: () => did } as never);
}

function readSigningKeys(did: string, token: Token, keys: SigningKeys): string[] {
  return [...token.ucans.values()]
    .filter((ucan) => ucan.issuer === did)
    .flatMap((ucan) => keys.get(ucan.cid) ?? [])
    .map(didFromPublicKey);
}
