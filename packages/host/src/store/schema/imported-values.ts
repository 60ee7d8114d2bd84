import { z } from 'zod';

const LATEST_TIME = 253_402_300_799_999;

/** What columns may contain in an archive, whose user may have changed it. */
export const Time = z.int().min(0).max(LATEST_TIME);

/** Room to count on. */
export const Count = z.int().min(0).max(1_000_000_000_000);

/** More than anyone makes in a session; each one of a path is a lookup. */
export const BranchNumber = Count.max(10_000);

export const Flag = z.union([z.literal(0), z.literal(1)]);

/** Characters of a message, and of its parts: more than any turn writes by default. */
export const MAX_TEXT = 4 * 1024 * 1024;
