import { z } from 'zod';
import { Id, Timestamp, wholeNumber } from './identifiers.js';
import { JsonObject } from './json.js';
import { Attachment } from './send-message.js';

/** A tool call as history keeps it; `output` is the JSON text of the result. */
export const ToolCall = z
  .object({
    id: z.string(),
    name: z.string(),
    args: JsonObject,
    status: z.enum(['done', 'error']),
    output: z.string(),
  })
  .meta({ id: 'ToolCall' });
export type ToolCall = z.infer<typeof ToolCall>;

/** A message as history shows it (contract B3). */
export const Message = z
  .object({
    id: z.uuid(),
    type: z.enum(['human', 'ai']),
    content: z.string(),
    createdAt: Timestamp,
    toolCalls: z.array(ToolCall).optional(),
    reasoning: z.string().optional(),
    attachments: z.array(Attachment).optional(),
    requestId: z.string(),
    isComplete: z.boolean().describe('false for a turn cut short'),
  })
  .meta({ id: 'Message' });
export type Message = z.infer<typeof Message>;

/** Reply of `GET /messages/:sessionId`: oldest first. */
export const MessageList = z.object({ messages: z.array(Message) }).meta({ id: 'MessageList' });
export type MessageList = z.infer<typeof MessageList>;

/** Query of `GET /sessions/:sessionId/messages`, counted in turns. */
export const PageMessages = z
  .strictObject({
    limit: wholeNumber({ min: 1, max: 100 }).default(20),
    before: Id.optional(),
    after: Id.optional(),
  })
  .refine(({ before, after }) => before === undefined || after === undefined, {
    error: 'before and after exclude each other',
  });
export type PageMessages = z.infer<typeof PageMessages>;

/** Reply of `GET /sessions/:sessionId/messages`. */
export const MessagePage = z
  .object({
    messages: z.array(Message),
    prevCursor: z.string().nullable(),
    nextCursor: z.string().nullable(),
    hasOlder: z.boolean(),
    hasNewer: z.boolean(),
  })
  .meta({ id: 'MessagePage' });
export type MessagePage = z.infer<typeof MessagePage>;

/** Something that was left out of a turn, as its `warning` frame reports it. */
export const ReplyWarning = z
  .object({ code: z.string(), message: z.string() })
  .meta({ id: 'ReplyWarning' });
export type ReplyWarning = z.infer<typeof ReplyWarning>;

/** Reply of `POST /messages/:sessionId` without `stream`. */
export const Reply = z
  .object({
    message: z.object({ type: z.literal('ai'), content: z.string(), id: z.string() }),
    sessionId: Id,
    requestId: z.string(),
    status: z
      .enum(['finished', 'aborted', 'interrupted', 'failed'])
      .describe('How the turn ended; unless `finished`, `content` is the answer as far as it came'),
    warnings: z
      .array(ReplyWarning)
      .optional()
      .describe('What was left out, and for `failed` why the turn failed'),
    messages: z.array(Message).optional(),
  })
  .meta({ id: 'Reply' });
export type Reply = z.infer<typeof Reply>;
