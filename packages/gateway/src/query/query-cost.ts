import { pageFieldOf } from '../binding/page-rules.js';
import { integerField, messageAt } from '../upstream/wire-fields.js';
import type { AskedQuestion } from './question.js';

/** What one unit of the rate limit pays for, beside the query itself. */
const ENTRIES_PER_UNIT = 100;
const SKIPPED_PER_UNIT = 1000;
const BODY_BYTES_PER_UNIT = 16 * 1024;
/** A node counts everything there is to tell a total. */
const COUNT_TOTAL_UNITS = 10;
const MAX_UNITS = 100;

/** PageRequest: 2 offset, 3 limit, 4 count_total. */
const PAGE = { offset: 2, limit: 3, countTotal: 4 } as const;

/** The units a body of this size costs, before anything is read from it. */
export const bodyCost = (bytes: number): number => Math.floor(bytes / BODY_BYTES_PER_UNIT);

/** The units a question costs beyond the first: for large pages, skipped entries and totals. */
export function extraCost({ route, message }: AskedQuestion): number {
  const field = pageFieldOf(route.request);
  const page = field && messageAt(message, [field.number]);
  if (!page || page.length === 0) return 0;
  const ofEntries = Math.floor(Math.max(0, integerField(page, PAGE.limit) - 1) / ENTRIES_PER_UNIT);
  const ofSkipped = Math.floor(integerField(page, PAGE.offset) / SKIPPED_PER_UNIT);
  const ofTotal = integerField(page, PAGE.countTotal) > 0 ? COUNT_TOTAL_UNITS : 0;
  return Math.min(MAX_UNITS, ofEntries + ofSkipped + ofTotal);
}
