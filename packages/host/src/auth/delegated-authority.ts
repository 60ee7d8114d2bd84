import type { MintRequest, TurnUcan, WantedCapability } from '@sibyl/plugin-kit/host';
import { OracleError, type StoppedWork } from '@sibyl/protocol';
import {
  type DidResolver,
  isAuthInvocation,
  isCovered,
  type Minter,
  readToken,
  toDidWeb,
  type UcanError,
  type VerifiedDelegation,
  type Verifier,
} from '@sibyl/ucan';
import type { Logger } from 'pino';
import type { HostBus } from '../bus/host-bus.js';
import type { DelegationStore, PluginUse } from '../store/delegation-store.js';
import type { RevocationStore } from '../store/revocation-store.js';
import { AccessWatch } from './access-watch.js';
import { PresentedDelegations, toTemporaryError } from './authenticator.js';
import type { Caller } from './caller.js';

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

type RevocationListener = (cid: string) => Promise<readonly StoppedWork[]>;

interface TurnUcanOptions {
  readonly caller: Caller;
  readonly plugin: string;
  readonly onUse?: (cids: readonly string[]) => void;
}

/** Uses the delegations of users: mints invocations for other services. */
export class DelegatedAuthority {
  /** The UCANs that open sockets and running turns depend on. */
  private readonly logins: AccessWatch;
  private readonly revocationListeners = new Set<RevocationListener>();
  private readonly uses: PluginUses;

  constructor(private readonly deps: DelegatedAuthorityDeps) {
    const { revocations, bus, logger } = deps;
    this.uses = new PluginUses(deps);
    this.logins = new AccessWatch({
      findEnded: (cids) => revocations.filterRevoked(cids),
      onEnded: (cid) => void this.apply(cid),
      bus,
      logger,
    });
    bus.on('revoked', ({ cids }) => {
      for (const cid of cids) void this.apply(cid);
    });
  }

  /**
   * The valid delegation of a caller: the one in the request, otherwise the stored one, which may allow more. So a caller
   * has no other when that in the request was revoked or has expired since, or when it served as the login.
   */
  async findDelegation(caller: Caller): Promise<VerifiedDelegation | undefined> {
    const { did, presentedDelegation } = caller;
    if (presentedDelegation !== undefined) {
      const { ok, error } = await this.verify(caller, presentedDelegation);
      if (ok || hasDelegatedLogin(caller) || hasEnded(caller, error)) return ok;
    }
    const stored = await this.deps.delegations.get({ owner: did, audience: this.deps.oracleDid });
    if ('ok' in stored) return (await this.verify(caller, stored.ok.raw)).ok;
    if (stored.error === 'unreadable')
      this.deps.logger.warn({ did, reason: stored.reason }, 'stored delegation cannot be read');
    return undefined;
  }

  /** The `ucan` of a plugin in a turn; `onUse` receives the UCANs behind everything that is signed. */
  turnUcan({ caller, plugin, onUse = () => {} }: TurnUcanOptions): TurnUcan {
    return {
      hasSigningKey: () => true,
      hasCapability: (wanted) => this.isGranted(caller, wanted),
      requireCapability: async (wanted) => {
        if (!(await this.isGranted(caller, wanted))) throw notDelegated(wanted);
      },
      mintInvocation: async (request) => {
        const { token, delegation } = await this.mint(caller, request);
        onUse(delegation.cids);
        this.recordUse({ owner: caller.did, cid: delegation.cid, purpose: 'services', plugin });
        return token;
      },
      resolveServiceDid: (serviceUrl) => resolveServiceDid(this.deps.resolver, serviceUrl),
    };
  }

  /**
   * Drops all cached results and minted invocations that depend on revoked delegations, and calls the listeners, on all
   * hosts. Resolves with what those of this host have stopped.
   */
  async forget(cids: readonly string[]): Promise<StoppedWork[]> {
    const stopped = cids.map((cid) => this.apply(cid));
    if (cids.length > 0) this.deps.bus.send('others', 'revoked', { cids });
    return (await Promise.all(stopped)).flat();
  }

  /** Records what a plugin did with a delegation; it is stored within a minute. */
  recordUse(use: Omit<PluginUse, 'at'>): void {
    this.uses.add({ ...use, at: Date.now() });
  }

  /** Stores what `recordUse` has received. */
  saveUses(): Promise<void> {
    return this.uses.save();
  }

  async hasRevoked(cids: readonly string[]): Promise<boolean> {
    return (await this.deps.revocations.filterRevoked(cids)).length > 0;
  }

  /** Calls back when one of the UCANs is revoked; returns a function that stops listening. */
  onRevoked(cids: readonly string[], listener: () => void): () => void {
    return this.logins.watch(cids, listener);
  }

  /** Calls back for every revocation that this host learns of; returns a function that stops listening. */
  onRevocation(listener: RevocationListener): () => void {
    this.revocationListeners.add(listener);
    return () => this.revocationListeners.delete(listener);
  }

  private async apply(revokedCid: string): Promise<StoppedWork[]> {
    this.deps.verifier.forget(({ cids }) => cids.includes(revokedCid));
    this.deps.minter.forget(revokedCid);
    this.logins.end(revokedCid);
    const stopped = [...this.revocationListeners].map((listener) =>
      listener(revokedCid).catch((err) => {
        this.deps.logger.warn(
          { err, cid: revokedCid },
          'revoked delegation not handled by a plugin',
        );
        return [];
      }),
    );
    return (await Promise.all(stopped)).flat();
  }

  private async isGranted(caller: Caller, wanted: WantedCapability): Promise<boolean> {
    const delegation = await this.findDelegation(caller);
    return delegation !== undefined && isCovered(wanted, delegation.capabilities);
  }

  private async mint(caller: Caller, request: MintRequest) {
    const delegation = await this.findDelegation(caller);
    if (!delegation) throw notDelegated(request);
    const { ok, error } = this.deps.minter.mint({ ...request, delegation });
    if (error?.code === 'not_covered') throw notDelegated(request);
    if (error)
      throw new OracleError('forbidden', { message: `Nothing was signed: ${error.detail}` });
    return { token: ok.token, delegation };
  }

  /** A delegation counts only when the authenticated caller issued it. */
  private async verify(
    { did, charge }: Caller,
    token: string,
  ): Promise<{ readonly ok?: VerifiedDelegation; readonly error?: UcanError | undefined }> {
    const { ok, error } = await this.deps.verifier.verifyDelegation(token, { charge });
    const temporary = error && toTemporaryError(error);
    if (temporary?.code === 'store_unavailable') throw temporary;
    if (ok?.did === did && !isAuthInvocation(ok)) {
      await this.deps.presented.record(ok);
      return { ok };
    }
    const reason = error?.code ?? (ok?.did === did ? 'auth invocation' : 'issued by another user');
    this.deps.logger.info({ did, reason, cid: error?.cid ?? ok?.cid }, 'delegation not used');
    return { error };
  }
}

const SAVE_USES_MS = 60_000;
const UNSAVED_USES = 1_000;

/**
 * What plugins did with delegations and is not stored yet: the last use of each. They are stored together once a minute, so
 * that signing writes nothing. A crash loses a minute of them.
 */
class PluginUses {
  private unsaved = new Map<string, PluginUse>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly deps: Pick<DelegatedAuthorityDeps, 'delegations' | 'logger'>) {}

  add(use: PluginUse): void {
    this.unsaved.set(`${use.purpose} ${use.cid}`, use);
    this.timer ??= setTimeout(() => void this.save(), SAVE_USES_MS).unref();
    if (this.unsaved.size >= UNSAVED_USES) void this.save();
  }

  async save(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const uses = [...this.unsaved.values()];
    this.unsaved = new Map();
    await this.deps.delegations.recordPlugins(uses).catch((err) => {
      // Only the time of the last use is lost; users can still read while the store accepts no writes.
      this.deps.logger.warn({ err }, 'cannot store the last use of delegations');
    });
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

/** Whether the caller logged in with the delegation in the request, rather than with an invocation beside it. */
function hasDelegatedLogin({ loginCids = [], presentedDelegation }: Caller): boolean {
  const cid = readToken(presentedDelegation).ok?.root.cid;
  return cid !== undefined && loginCids.includes(cid);
}

/** Whether the delegation in the request was one of the caller that ended after it arrived. */
function hasEnded(
  { did, presentedDelegation, presentedAt = Number.POSITIVE_INFINITY }: Caller,
  error: UcanError | undefined,
): boolean {
  const root = readToken(presentedDelegation).ok?.root;
  if (root?.issuer !== did) return false;
  const expiration = root.expiration ?? Number.POSITIVE_INFINITY;
  return error?.code === 'revoked' || (error?.code === 'expired' && expiration > presentedAt);
}
