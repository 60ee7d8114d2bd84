/**
 * The sessions and preferences of a sub-user are in a separate room, which names them. Ids of other rooms begin otherwise: the
 * host's are UUIDs, those of Matrix begin with `!`.
 */
const PREFIX = 'sub-user:';

export const toSubUserRoom = (subUser: string): string => PREFIX + subUser;

/** The sub-user that a session belongs to; undefined for the user's own. */
export const findSubUser = ({ roomId }: { readonly roomId: string }): string | undefined =>
  roomId.startsWith(PREFIX) ? roomId.slice(PREFIX.length) : undefined;
