/** What a look at a database has found: nothing, one that the next start brings up to date, or one that is. */
export type DatabaseState = 'absent' | 'behind' | 'ready';
