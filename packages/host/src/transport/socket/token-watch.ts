import { type ClosingReason, OracleError } from '@sibyl/protocol';
import type { Authenticator } from '../../auth/authenticator.js';
import type { CallerAllowList } from '../../auth/caller-allow-list.js';
import type { DelegatedAuthority } from '../../auth/delegated-authority.js';
import type { Seat } from './admission.js';

/** How often credentials are verified again, to find revocations by other processes. */
const INTERVAL_MS = 60_000;

interface AccessRules {
  readonly authenticator: Authenticator;
  readonly authority: Pick<DelegatedAuthority, 'onRevoked'>;
  readonly allowList: Pick<CallerAllowList, 'watch'>;
}

/**
 * Calls back once, when the caller of a socket loses access: at once when this process revokes the
 * delegation or removes the caller. Returns how to stop watching.
 */
export function watchAccess(
  { caller, credentials }: Pick<Seat, 'caller' | 'credentials'>,
  { authenticator, authority, allowList }: AccessRules,
  onEnd: (reason: ClosingReason) => void,
): () => void {
  let timer: NodeJS.Timeout | undefined;
  let isWatching = true;
  const stop = () => {
    isWatching = false;
    clearTimeout(timer);
    stopListening();
    stopWatchingCaller();
  };
  const end = (reason: ClosingReason) => {
    if (!isWatching) return;
    stop();
    onEnd(reason);
  };
  const leftMs = () => caller.expiration * 1000 - Date.now();
  const arm = () => {
    if (isWatching) timer = setTimeout(check, Math.max(0, Math.min(INTERVAL_MS, leftMs())));
  };
  const check = async () => {
    if (leftMs() <= 0) end('token_expired');
    else if (await stillCounts(credentials, authenticator)) arm();
    else end('token_revoked');
  };
  const loginCids = caller.login?.cids ?? [];
  const stopListening = authority.onRevoked(loginCids, () => end('token_revoked'));
  const stopWatchingCaller = allowList.watch(caller.did, () => end('caller_not_allowed'));
  // It may have been revoked between the handshake and now.
  if (loginCids.length > 0) void check();
  else arm();
  return stop;
}

/** A store that is unavailable says nothing about the credentials. */
async function stillCounts(
  credentials: Seat['credentials'],
  authenticator: Authenticator,
): Promise<boolean> {
  try {
    await authenticator.authenticate(credentials, {});
    return true;
  } catch (fault) {
    return !(fault instanceof OracleError && fault.status === 401);
  }
}
