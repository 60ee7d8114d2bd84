/** The longest that an invitation may be valid. A file without imports: the command line reads it at every start. */
export const INVITATION_MAX_DAYS = 365;
