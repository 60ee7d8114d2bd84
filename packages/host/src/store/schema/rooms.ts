import { bigint, defineTable, json, text } from '@sibyl/plugin-kit/tables';
import { z } from 'zod';
import { Time } from './imported-values.js';

export const rooms = defineTable(
  'rooms',
  { owner: text(), id: text(), oracle_did: text(), created_at: bigint() },
  {
    key: ['owner', 'id'],
    indexes: { rooms_one_per_oracle: { on: ['owner', 'oracle_did'], isUnique: true } },
  },
);

/** What belongs to a room rather than to a session, such as preferences. */
export const roomState = defineTable(
  'room_state',
  {
    owner: text(),
    room_id: text().imported(z.string().max(512)),
    key: text().imported(z.string().max(200)),
    /** Null while the first change is in progress. */
    data: json<Readonly<Record<string, unknown>>>()
      .optional()
      .imported(z.record(z.string(), z.unknown())),
    updated_at: bigint().imported(Time),
  },
  { key: ['owner', 'room_id', 'key'] },
);
