import { bigint, defineTable, text } from '@sibyl/plugin-kit/tables';
import { Feedback, Id } from '@sibyl/protocol';
import { z } from 'zod';
import { Time } from './imported-values.js';

/** What users think of answers. */
export const feedback = defineTable(
  'feedback',
  {
    owner: text(),
    session_id: text().imported(Id),
    message_id: text().imported(Id),
    rating: text<'up' | 'down'>().imported(z.enum(['up', 'down'])),
    comment: text().optional().imported(Feedback.shape.comment),
    created_at: bigint().imported(Time),
    updated_at: bigint().imported(Time),
  },
  {
    key: ['owner', 'session_id', 'message_id'],
    parent: { table: 'sessions', column: 'session_id' },
  },
);
