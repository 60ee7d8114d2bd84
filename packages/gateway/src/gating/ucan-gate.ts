import {
  type Charge,
  isCovered,
  readToken,
  type VerifiedDelegation,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from '../observe/logger.js';
import { bearerOf } from './bearer.js';
import type { Caller, Credentials, Gate } from './caller.js';
import { busy, forbidden, unauthenticated } from './refusals.js';

/** What a UCAN must let its bearer do. */
export const CHAIN_QUERY = 'chain/query';
/** The chain's routes; `ixo:chain/ixo/entity/*` is a part of them, by template. */
export const CHAIN = 'ixo:chain';
/** How far ahead a bearer may expire, clock skew included: it can be used until then by whoever sees it. */
const MAX_LIFE_SECONDS = 930;
const BUSY_RETRY_SECONDS = 3;

interface UcanGateOptions {
  readonly verifier: Verifier;
  /** DIDs at the root of a chain of UCANs whose word counts; `*` for all. */
  readonly issuers: readonly string[];
  readonly logger: Logger;
}

/** Lets those in who bring a UCAN for this gateway with the capability to query. */
export class UcanGate implements Gate {
  constructor(private readonly options: UcanGateOptions) {}

  async admit({ headers, address }: Credentials, charge: Charge): Promise<Caller> {
    const isUcan =
      String(headers['x-auth-type'] ?? '')
        .trim()
        .toLowerCase() === 'ucan';
    const token = isUcan ? bearerOf(headers) : undefined;
    if (token === undefined) {
      throw unauthenticated(
        'a UCAN is needed: Authorization: Bearer <invocation> with X-Auth-Type: ucan',
      );
    }
    const { ok, error } = await this.options.verifier.verifyDelegation(token, { charge });
    if (error) throw this.refusal(error);
    if (ok.expiration > Date.now() / 1000 + MAX_LIFE_SECONDS) {
      throw this.refusal({ code: 'expiry_too_far', detail: `${ok.expiration}`, issuer: ok.did });
    }
    if (!this.isTrusted(token)) throw forbidden('none whose word counts here granted this UCAN');
    return callerOf(ok, address);
  }

  /** Every chain of proofs must begin with somebody trusted: one stranger could grant anything. */
  private isTrusted(token: string): boolean {
    const { issuers } = this.options;
    if (issuers.includes('*')) return true;
    const ucans = [...(readToken(token).ok?.ucans.values() ?? [])];
    const roots = ucans.filter(({ proofs }) => proofs.length === 0);
    return roots.length > 0 && roots.every(({ issuer }) => issuers.includes(issuer));
  }

  /** The reason goes to the log alone: it would help an attacker. */
  private refusal(fault: { code: string; detail: string; cid?: string; issuer?: string }) {
    const { code, detail, cid, issuer } = fault;
    this.options.logger.info({ reason: code, detail, cid, did: issuer }, 'caller refused');
    if (code === 'did_busy' || code === 'verifier_busy') return busy(BUSY_RETRY_SECONDS);
    return unauthenticated('Invalid UCAN invocation');
  }
}

function callerOf(
  { did, capabilities: grants, expiration }: VerifiedDelegation,
  address: string,
): Caller {
  const everything = { can: CHAIN_QUERY, with: CHAIN };
  const isWhole = isCovered(everything, grants);
  return {
    name: did,
    address,
    perMinute: undefined,
    expiresAt: expiration * 1000,
    mayAsk: (template) =>
      isWhole || isCovered({ can: CHAIN_QUERY, with: `${CHAIN}${template}` }, grants),
  };
}
