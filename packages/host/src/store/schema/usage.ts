import { bigint, defineTable, type Row, real, text } from '@sibyl/plugin-kit/tables';

/** What users used in sessions that were deleted. */
export const usageDays = defineTable(
  'usage_days',
  {
    owner: text(),
    /** In UTC, such as 2026-01-31. */
    day: text(),
    session_id: text(),
    model: text(),
    turns: bigint(),
    input_tokens: bigint(),
    output_tokens: bigint(),
    cached_tokens: bigint(),
    /** Null if the model has no price. */
    cost: real().optional(),
  },
  {
    key: ['owner', 'day', 'session_id', 'model'],
    // Operators read what deleted sessions of all users have used since a day.
    indexes: { usage_days_by_day: { on: ['day'] } },
  },
);

export type UsageDayRow = Row<typeof usageDays>;

/** Tokens per day, of all users together. */
export const modelUsage = defineTable(
  'model_usage',
  {
    /** In UTC, such as 2026-01-31. */
    day: text(),
    tokens: bigint(),
  },
  { key: ['day'], ownerColumn: false },
);
