import { OracleError } from '@sibyl/protocol';
import type { AccessKeys } from '../../auth/access-keys.js';
import type { Caller } from '../../auth/caller.js';
import type { CallerAllowList, Exclusion } from '../../auth/caller-allow-list.js';
import type { DelegatedAuthority } from '../../auth/delegated-authority.js';
import type { ActiveRun } from '../run/active-run.js';
import type { TurnRequest } from '../turn-request.js';

interface TurnAccessDeps {
  readonly authority: Pick<DelegatedAuthority, 'onRevoked' | 'hasRevoked'>;
  readonly allowList: Pick<CallerAllowList, 'watch' | 'findExclusion'>;
  readonly accessKeys: Pick<AccessKeys, 'takeTurn' | 'returnTurn'>;
}

/** How long a reader may still receive the end of a turn that was aborted for the same reason. */
const LAST_FRAMES_MS = 800;

/** Ends turns whose callers lose access: at once if a host of the database revokes it, otherwise within seconds. */
export class TurnAccess {
  constructor(private readonly deps: TurnAccessDeps) {}

  /** Throws if the access key of the caller does not permit the turn; otherwise counts it. */
  async admit({ caller, sessionId, message }: TurnRequest): Promise<void> {
    if (!caller.accessKey) return;
    const { session = sessionId, model = message.model } = caller.accessKey.caveats;
    if (session !== sessionId || model !== message.model)
      throw new OracleError('access_key_too_narrow');
    await this.deps.accessKeys.takeTurn(caller);
  }

  /** Does not count a turn that was admitted and did not start. */
  async release({ caller }: TurnRequest): Promise<void> {
    await this.deps.accessKeys.returnTurn(caller);
  }

  /** Throws if the caller of a turn that waited has lost access meanwhile. */
  async assertKept({ did, loginCids = [] }: Pick<Caller, 'did' | 'loginCids'>): Promise<void> {
    const { authority, allowList } = this.deps;
    const exclusion = await allowList.findExclusion(did);
    if (exclusion) throw new OracleError(exclusion);
    if (await authority.hasRevoked(loginCids)) throw new OracleError('access_revoked');
  }

  /** Calls back when the caller of a turn or stream loses access, until it has ended. */
  watch(
    { did, loginCids = [] }: Caller,
    { signal }: Pick<ActiveRun, 'signal'>,
    onEnded: (error: OracleError) => void,
  ): void {
    const { authority, allowList } = this.deps;
    const end = (code: 'access_revoked' | Exclusion) => onEnded(new OracleError(code));
    const stops = [
      authority.onRevoked(loginCids, () => end('access_revoked')),
      allowList.watch(did, end),
    ];
    signal.addEventListener('abort', () => stops.forEach((stop) => void stop()), { once: true });
  }

  /** A signal that also ends when the caller of a request that waits or reads loses access. */
  limit(caller: Caller, signal: AbortSignal): AbortSignal {
    if (signal.aborted) return signal;
    const ended = new AbortController();
    signal.addEventListener('abort', () => ended.abort(signal.reason), { once: true });
    this.watch(caller, ended, (error) => {
      const timer = setTimeout(() => ended.abort(error), LAST_FRAMES_MS).unref();
      ended.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    });
    return ended.signal;
  }

  /** Returns a function for the UCANs that a turn has used: it is aborted when one of them is revoked. */
  watchUses(active: Pick<ActiveRun, 'cancel' | 'signal'>): (cids: readonly string[]) => void {
    const watched = new Set<string>();
    const end = () => active.cancel('aborted', new OracleError('access_revoked'));
    return (cids) => {
      const added = cids.filter((cid) => !watched.has(cid));
      if (added.length === 0) return;
      for (const cid of added) watched.add(cid);
      const stop = this.deps.authority.onRevoked(added, end);
      active.signal.addEventListener('abort', stop, { once: true });
    };
  }
}
