import { type OracleClient, OracleClientError } from '@sibyl/client';

/** What keeps the user from the oracle, if anything; `code` as in the client's errors. */
export interface AccessFault {
  readonly code: string;
  readonly message: string;
}

/** The invitation in the address, which is removed from it: it must not stay in the history. */
export function takeInvitation(): string | undefined {
  const invitation = new URLSearchParams(location.hash.slice(1)).get('invite');
  if (invitation === null) return undefined;
  history.replaceState(history.state, '', `${location.pathname}${location.search}`);
  // Some programs decode %2B in links, and a plus sign in a query stands for a space.
  return invitation.replaceAll(' ', '+');
}

/**
 * Redeems an invitation and finds out whether the user may use an oracle for invited users. A fault
 * of the invitation counts only for a user who is not admitted anyway.
 */
export async function checkAccess(
  client: OracleClient,
  invitation: string | undefined,
): Promise<AccessFault | undefined> {
  const refused =
    invitation === undefined
      ? undefined
      : await findFault(() => client.redeemInvitation(invitation));
  const { features } = await client.card();
  if (!features.includes('invitations')) return undefined;
  const closed = await findFault(() => client.sessions.list({ limit: 1 }));
  return closed?.code === 'caller_not_allowed' ? (refused ?? closed) : undefined;
}

/** Other faults than refusals, such as a lost connection, are for the caller. */
async function findFault(work: () => Promise<unknown>): Promise<AccessFault | undefined> {
  try {
    await work();
    return undefined;
  } catch (error) {
    if (error instanceof OracleClientError && REFUSALS.has(error.code)) return error;
    throw error;
  }
}

const REFUSALS: ReadonlySet<string> = new Set([
  'caller_not_allowed',
  'invalid_invitation',
  'invitation_used',
  'invitation_expired',
  'validation_failed',
]);
