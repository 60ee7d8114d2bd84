import type { MintRequest, TurnUcan, WantedCapability } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import {
  type DidResolver,
  isCovered,
  type Minter,
  toDidWeb,
  type VerifiedDelegation,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { HostBus } from '../bus/host-bus.js';
import type { DelegationStore } from '../store/delegation-store.js';
import type { RevocationStore } from '../store/revocation-store.js';
import { AccessWatch } from './access-watch.js';
import type { Caller } from './caller.js';
import type { PresentedDelegations } from './presented-delegations.js';

interface DelegatedAuthorityDeps {
  readonly oracleDid: string;
  readonly verifier: Verifier;
  readonly minter: Minter;
  readonly resolver: DidResolver;
  readonly delegations: DelegationStore;
  readonly presented: PresentedDelegations;
  readonly revocations: Pick<RevocationStore, 'filterRevoked'>;
  readonly bus: HostBus;
  readonly logger: Logger;
}

/** Uses the delegations of users: mints invocations for other services. */
export class DelegatedAuthority {
  /** The UCANs that open sockets logged in with. */
  private readonly logins: AccessWatch;

  constructor(private readonly deps: DelegatedAuthorityDeps) {
    const { revocations, bus, logger } = deps;
    this.logins = new AccessWatch({
      findEnded: (cids) => revocations.filterRevoked(cids),
      onEnded: (cid) => this.apply(cid),
      bus,
      logger,
    });
    bus.on('revoked', ({ cids }) => {
      for (const cid of cids) this.apply(cid);
    });
  }

  /** The valid delegation of a caller: the one in the request, otherwise the stored one. */
  async findDelegation(caller: Caller): Promise<VerifiedDelegation | undefined> {
    const presented = await this.verify(caller, caller.presentedDelegation);
    return presented ?? this.verify(caller, await this.findStoredToken(caller.did));
  }

  /** The `ucan` of a turn's context. */
  turnUcan(caller: Caller): TurnUcan {
    return {
      hasSigningKey: () => true,
      hasCapability: (wanted) => this.isGranted(caller, wanted),
      requireCapability: async (wanted) => {
        if (!(await this.isGranted(caller, wanted))) throw notDelegated(wanted);
      },
      mintInvocation: (request) => this.mint(caller, request),
      resolveServiceDid: (serviceUrl) => resolveServiceDid(this.deps.resolver, serviceUrl),
    };
  }

  /**
   * Drops all cached results and minted invocations that depend on revoked delegations, and calls the listeners, on all
   * hosts.
   */
  forget(cids: readonly string[]): void {
    for (const cid of cids) this.apply(cid);
    if (cids.length > 0) this.deps.bus.send('others', 'revoked', { cids });
  }

  /** Calls back when one of the UCANs is revoked; returns a function that stops listening. */
  onRevoked(cids: readonly string[], listener: () => void): () => void {
    return this.logins.watch(cids, listener);
  }

  private apply(revokedCid: string): void {
    this.deps.verifier.forget(({ cids }) => cids.includes(revokedCid));
    this.deps.minter.forget(revokedCid);
    this.logins.end(revokedCid);
  }

  private async isGranted(caller: Caller, wanted: WantedCapability): Promise<boolean> {
    const delegation = await this.findDelegation(caller);
    return delegation !== undefined && isCovered(wanted, delegation.capabilities);
  }

  private async mint(caller: Caller, request: MintRequest): Promise<string> {
    const delegation = await this.findDelegation(caller);
    if (!delegation) throw notDelegated(request);
    const { ok, error } = this.deps.minter.mint({ ...request, delegation });
    if (ok) return ok.token;
    if (error.code === 'not_covered') throw notDelegated(request);
    throw new OracleError('forbidden', { message: `Nothing was signed: ${error.detail}` });
  }

  /** A delegation counts only when the authenticated caller issued it. */
  private async verify(
    { did, charge }: Caller,
    token: string | undefined,
  ): Promise<VerifiedDelegation | undefined> {
    if (token === undefined) return undefined;
    const { ok, error } = await this.deps.verifier.verifyDelegation(token, { charge });
    if (ok?.did === did) {
      await this.deps.presented.record(ok);
      return ok;
    }
    const reason = error?.code ?? 'issued by another user';
    this.deps.logger.info({ did, reason, cid: error?.cid ?? ok?.cid }, 'delegation not used');
    return undefined;
  }

  private async findStoredToken(did: string): Promise<string | undefined> {
    const stored = await this.deps.delegations.get({
      owner: did,
      audience: this.deps.oracleDid,
    });
    if ('ok' in stored) return stored.ok.raw;
    if (stored.error === 'unreadable')
      this.deps.logger.warn({ did, reason: stored.reason }, 'stored delegation cannot be read');
    return undefined;
  }
}

const notDelegated = ({ can, with: resource }: WantedCapability) =>
  new OracleError('forbidden', {
    message: `The user has not delegated ${can} at ${resource} to this oracle: ask them to grant it`,
  });

/** The did:web of the service at an address; its document must name the same DID. */
export async function resolveServiceDid(
  resolver: DidResolver,
  serviceUrl: string,
): Promise<string> {
  const { ok: did, error: invalid } = toDidWeb(serviceUrl);
  const { error = invalid } = did ? await resolver.resolve(did) : {};
  if (did && !error) return did;
  throw new OracleError('forbidden', {
    message: `${serviceUrl} does not prove its DID: ${error?.detail}`,
  });
}
