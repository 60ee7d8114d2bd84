import { randomUUID } from 'node:crypto';
import type { OracleUcan } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import {
  type DidResolver,
  mintDelegation,
  type Signer,
  systemClock,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import { resolveServiceDid } from './service-did.js';

const DEFAULT_TTL_SECONDS = 300;
const MIN_TTL_SECONDS = 5;

type OwnMintRequest = Parameters<OracleUcan['mintInvocation']>[0];
type Wanted = Parameters<OracleUcan['acceptOnce']>[1];

interface OracleAuthorityParts {
  readonly signer: Signer;
  readonly resolver: DidResolver;
  /** Makes a verifier whose single-use tokens are remembered for one caller. */
  readonly verifierFor: (issuer: string) => Verifier;
  readonly logger: Logger;
}

/** What the oracle does under its own name, rather than for a user. */
export class OracleAuthority implements OracleUcan {
  // Plugins hold this object, and its signer is the oracle's key.
  readonly #parts: OracleAuthorityParts;

  constructor(parts: OracleAuthorityParts) {
    this.#parts = parts;
  }

  /** Of its own authority: a UCAN without proofs, which only the oracle itself can make. */
  async mintInvocation({ audience, ttlSeconds, ...wanted }: OwnMintRequest): Promise<string> {
    const { can, with: resource, nb } = wanted;
    const expiration = systemClock() + Math.max(ttlSeconds ?? DEFAULT_TTL_SECONDS, MIN_TTL_SECONDS);
    const { ok, error } = mintDelegation({
      signer: this.#parts.signer,
      audience,
      capabilities: [{ can, with: resource, ...(nb && { nb }) }],
      expiration,
      facts: [{ nonce: randomUUID() }],
    });
    if (ok) return ok.token;
    throw new OracleError('forbidden', { message: `Nothing was signed: ${error.detail}` });
  }

  resolveServiceDid(serviceUrl: string): Promise<string> {
    return resolveServiceDid(this.#parts.resolver, serviceUrl);
  }

  /** Why a token was refused goes to the log, with its CID: the one who sent it might learn from it. */
  async acceptOnce(token: string, wanted: Wanted) {
    const { error } = await this.#parts.verifierFor(wanted.issuer).verifySingleUse(token, wanted);
    if (!error) return { ok: true } as const;
    const { code, detail, cid } = error;
    this.#parts.logger.info({ reason: code, detail, cid, did: wanted.issuer }, 'token refused');
    return { fault: reasonOf(code) };
  }
}

/** What the user can mend is told; the rest is one text. */
function reasonOf(code: string): string {
  switch (code) {
    case 'expired':
      return 'the invocation has expired';
    case 'replayed':
      return 'the invocation was used before';
    case 'replay_store_unavailable':
    case 'revocations_unavailable':
      return 'the invocation cannot be checked now; try again with a new one';
    default:
      return 'the invocation is not valid for this call';
  }
}
