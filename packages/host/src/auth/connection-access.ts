import { type ClosingReason, OracleError } from '@sibyl/protocol';
import type { Authenticator, Credentials } from './authenticator.js';
import type { Caller } from './caller.js';
import type { CallerAllowList } from './caller-allow-list.js';
import type { DelegatedAuthority } from './delegated-authority.js';

/** How often credentials are verified again, since keys may have been removed from DID documents. */
const VERIFY_MS = 60_000;

interface WatchedAccess {
  readonly caller: Caller;
  readonly credentials: Credentials;
}

export interface AccessDeps {
  readonly authenticator: Authenticator;
  readonly authority: Pick<DelegatedAuthority, 'onRevoked'>;
  readonly allowList: Pick<CallerAllowList, 'watch'>;
}

/**
 * Calls `onEnd` once when the caller of a socket or stream loses access: at once if a host revokes the delegation or removes the
 * caller. Returns a function that stops watching.
 */
export function watchAccess(
  { caller, credentials }: WatchedAccess,
  { authenticator, authority, allowList }: AccessDeps,
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
    if (isWatching) timer = setTimeout(check, Math.max(0, Math.min(VERIFY_MS, leftMs())));
  };
  const check = async () => {
    if (leftMs() <= 0) end('token_expired');
    else if (await isStillValid(credentials, authenticator)) arm();
    else end('token_revoked');
  };
  const loginCids = caller.login?.cids ?? [];
  const stopListening = authority.onRevoked(loginCids, () => end('token_revoked'));
  const stopWatchingCaller = allowList.watch(caller.did, () => end('caller_not_allowed'));
  // It may have been revoked since the handshake.
  if (loginCids.length > 0) void check();
  else arm();
  return stop;
}

/** Credentials stay valid while the store is unavailable. */
async function isStillValid(
  credentials: Credentials,
  authenticator: Authenticator,
): Promise<boolean> {
  try {
    await authenticator.authenticate(credentials, {});
    return true;
  } catch (error) {
    return !(error instanceof OracleError && error.status === 401);
  }
}
