import { OracleError } from '@sibyl/protocol';
import type { Authenticator } from '../../auth/authenticator.js';
import type { Seat } from './admission.js';

/** How often credentials are looked at again: what was revoked must not outlive its revocation for long. */
const INTERVAL_MS = 60_000;

/** Calls back once, when the credentials of a seat count no more; returns how to stop watching. */
export function watchToken(
  { caller, credentials }: Pick<Seat, 'caller' | 'credentials'>,
  authenticator: Authenticator,
  onEnd: () => void,
): () => void {
  let timer: NodeJS.Timeout;
  let isWatching = true;
  const leftMs = () => caller.expiration * 1000 - Date.now();
  const arm = () => {
    if (isWatching) timer = setTimeout(check, Math.max(0, Math.min(INTERVAL_MS, leftMs())));
  };
  const check = async () => {
    const counts = leftMs() > 0 && (await stillCounts(credentials, authenticator));
    if (counts) arm();
    else if (isWatching) onEnd();
  };
  arm();
  return () => {
    isWatching = false;
    clearTimeout(timer);
  };
}

/** A store that is away says nothing about the credentials. */
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
