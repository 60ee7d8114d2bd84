import { setImmediate } from 'node:timers/promises';
import type { Delegation, ParsedCapability, Principal } from '@ucanto/interface';
import { equalBytes } from '../codec/bytes.js';
import { signingBytes } from '../codec/ucan-block.js';
import { didFromPublicKey } from '../did/did-key.js';
import { refuse, type UcanFault } from '../fault.js';
import type { Capability, Token, Ucan } from '../gate/token.js';
import { covers } from './coverage.js';
import { proofsOf } from './delegation-rules.js';
import type { SigningKeys } from './verify-signatures.js';

/** Has ucanto find its own path from every delegated capability to the root of the chain. */
export async function claimWithUcanto(
  token: Token,
  keys: SigningKeys,
): Promise<UcanFault | undefined> {
  try {
    // Loaded here because a bearer never needs it, and it would be most of the start-up time.
    const ucanto = await loadUcanto();
    const root = viewOf(token.root, token, ucanto);
    for (const [index, capability] of token.root.capabilities.entries()) {
      const parser = parserOf(capability, index, ucanto);
      const result = await ucanto.claim(parser, [root], claimOptions(token, keys));
      if (result.error) return refuse('claim_refused', result.error.message.slice(0, 500)).error;
      // Sixteen capabilities over four layers take long enough for others to notice.
      await setImmediate();
    }
    return undefined;
  } catch (cause) {
    return refuse('claim_refused', String(cause).slice(0, 200)).error;
  }
}

async function loadUcanto() {
  const [core, validator] = await Promise.all([
    import('@ucanto/core'),
    import('@ucanto/validator'),
  ]);
  return { ...core, claim: validator.claim, capability: validator.capability };
}

type Ucanto = Awaited<ReturnType<typeof loadUcanto>>;

/** A UCAN as ucanto sees it, without its time bounds: those were checked here, with our clock. */
function viewOf(ucan: Ucan, token: Token, ucanto: Ucanto): Delegation {
  const view = ucanto.Delegation.create({
    root: { cid: ucanto.parseLink(ucan.cid) as never, bytes: ucan.bytes as never },
    blocks: new Map(),
  });
  const data = Object.create(ucanto.UCAN.decode(ucan.bytes as never), {
    expiration: { value: Number.POSITIVE_INFINITY },
    notBefore: { value: undefined },
  });
  const proofs = proofsOf(ucan, token.ucans).map((proof) => viewOf(proof, token, ucanto));
  return Object.defineProperties(view, { data: { value: data }, proofs: { value: proofs } });
}

/** Matches the capability at this place of the root and what may grant it in the proofs. */
function parserOf({ can }: Capability, index: number, ucanto: Ucanto) {
  const anything = { read: (input: unknown) => ({ ok: input }) };
  const parser = ucanto.capability({
    can: can as never,
    with: anything as never,
    nb: anything as never,
    derives: (claimed: unknown, granted: unknown) =>
      covers(granted as Capability, claimed as Capability)
        ? { ok: {} }
        : { error: new ucanto.Failure('the proof does not cover it') },
  });
  const select: typeof parser.select = (sources) => parser.select(sources.slice(index, index + 1));
  return Object.assign(Object.create(parser) as typeof parser, { select });
}

function claimOptions(token: Token, keys: SigningKeys) {
  return {
    authority: verifierOf(token.root.audience, token),
    principal: { parse: (did: string) => verifierOf(did, token) },
    canIssue: (capability: unknown) => canIssue(capability as ClaimedCapability),
    resolveDIDKey: (did: string) => ({ ok: signingKeysOf(did, token, keys) }),
    validateAuthorization: () => ({ ok: {} }),
  } as never as Parameters<Ucanto['claim']>[2];
}

type ClaimedCapability = ParsedCapability & { readonly delegation: Delegation };

/**
 * Only a UCAN without proofs speaks for itself, and nobody for the signature of another: ucanto
 * takes an attestation by whoever may issue it instead of a signature.
 */
function canIssue({ can, delegation }: ClaimedCapability): boolean {
  return delegation.proofs.length === 0 && can !== 'ucan/attest';
}

/** Confirms a signature that was verified here, if ucanto too takes it to be over these bytes. */
function verifierOf(did: string, token: Token): Principal {
  const verifier = {
    did: () => did,
    withDID: (other: string) => verifierOf(other, token),
    verify: (payload: Uint8Array, signature: { readonly raw: Uint8Array }) =>
      [...token.ucans.values()].some(
        (ucan) =>
          ucan.issuer === did &&
          equalBytes(ucan.signature, signature.raw) &&
          equalBytes(signingBytes(ucan), payload),
      ),
  };
  return verifier as never;
}

function signingKeysOf(did: string, token: Token, keys: SigningKeys): string[] {
  return [...token.ucans.values()]
    .filter((ucan) => ucan.issuer === did)
    .flatMap((ucan) => keys.get(ucan.cid) ?? [])
    .map(didFromPublicKey);
}
