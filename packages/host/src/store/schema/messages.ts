import {
  bigint,
  defineTable,
  flag,
  json,
  type Row,
  text,
  type Values,
} from '@sibyl/plugin-kit/tables';
import { type ErrorKind, Id, Message, MessagePart, RequestId } from '@sibyl/protocol';
import { z } from 'zod';
import { BranchNumber, Count, Flag, MAX_TEXT, Time } from './imported-values.js';

/** Why a turn has no complete answer. */
export interface MessageError {
  readonly status: 'aborted' | 'interrupted' | 'failed';
  readonly code: string;
  readonly message: string;
  readonly kind?: ErrorKind | undefined;
}

const ImportedError = Message.shape.error
  .unwrap()
  .extend({ status: Message.shape.status.unwrap() });

/** The messages of sessions: `seq` is the order of storing, `turn` counts the messages of the user. */
export const messages = defineTable(
  'messages',
  {
    owner: text(),
    id: text().imported(Id),
    session_id: text().imported(Id),
    turn: bigint().imported(Count),
    seq: bigint().imported(Count),
    /** 0, or a row of `branches`. */
    branch: bigint().imported(BranchNumber.default(0)),
    /** The question of an answer; for a question, the message it continues from, if any. */
    parent: text().optional().imported(Id),
    type: text<'human' | 'ai'>().imported(z.enum(['human', 'ai'])),
    /** The text of all parts. */
    content: text().imported(z.string().max(MAX_TEXT)),
    /** What the message consists of, in the order it happened; none if it is only its text. */
    parts: json<readonly MessagePart[]>().optional().imported(z.array(MessagePart)),
    metadata: json<Readonly<Record<string, unknown>>>()
      .optional()
      .imported(z.record(z.string(), z.unknown())),
    request_id: text().imported(RequestId),
    run_id: text().optional().imported(Id),
    /** False for the partial answer of a turn that did not finish. */
    is_complete: flag().imported(Flag),
    error: json<MessageError>().optional().imported(ImportedError),
    created_at: bigint().imported(Time),
  },
  {
    key: ['owner', 'id'],
    parent: { table: 'sessions', column: 'session_id' },
    indexes: {
      messages_of_branch: { on: ['owner', 'session_id', 'branch', 'turn', 'seq'], isUnique: true },
    },
  },
);

export type MessageRow = Row<typeof messages>;
export type StoredMessage = Values<typeof messages>;
