import { z } from 'zod';
import { Attachment, SentAttachment } from './files.js';
import { Id, RequestId, Timestamp, TimezoneName, UcanToken, wholeNumber } from './identifiers.js';
import { JsonObject, type JsonSize, limitedRecord, measureJson } from './json.js';
import { Citation, ErrorKind, PendingAnswer, TurnUsage } from './run-frames.js';

const ToolName = z.string().min(1).max(128);
const Description = z.string().max(4096);

/** A tool that runs in the user's browser. */
export const BrowserTool = z
  .strictObject({ name: ToolName, schema: JsonObject, description: Description })
  .meta({ id: 'BrowserTool' });
export type BrowserTool = z.infer<typeof BrowserTool>;

/** An AG-UI action of the user's page. */
export const AgAction = z
  .strictObject({
    name: ToolName,
    description: Description,
    schema: JsonObject,
    hasRender: z.boolean().optional(),
  })
  .meta({ id: 'AgAction' });
export type AgAction = z.infer<typeof AgAction>;

/** The most that the schemas in `tools` may hold, and the same for `agActions`: all of it is sent to the model. */
const MAX_DECLARATIONS = 128;
const SCHEMAS_LIMITS = { depth: 100, values: 20_000, characters: 256 * 1024 };

/** What a page declares. Its size is checked before anything else, so that a huge list costs next to nothing. */
const declarations = <T extends z.ZodType>(item: T) =>
  z.preprocess((sent, { addIssue }) => {
    const excess = Array.isArray(sent) ? findListExcess(sent) : undefined;
    if (excess === undefined) return sent;
    addIssue({ code: 'custom', message: excess });
    return z.NEVER;
  }, z.array(item).max(MAX_DECLARATIONS));

const findListExcess = (list: readonly unknown[]): string | undefined =>
  list.length > MAX_DECLARATIONS
    ? `may hold at most ${MAX_DECLARATIONS} entries`
    : describeExcess(measureJson(list.map(readSchema), SCHEMAS_LIMITS));

const readSchema = (declaration: unknown): unknown =>
  (declaration as { schema?: unknown } | null | undefined)?.schema;

const describeExcess = ({ excess }: JsonSize): string | undefined =>
  excess && `the schemas ${excess} together`;

/** What to do if a turn is running in this session. */
export const Multitask = z.enum(['enqueue', 'interrupt', 'reject']);
export type Multitask = z.infer<typeof Multitask>;

/** How much a model reasons before it answers. */
export const ReasoningEffort = z.enum(['none', 'low', 'medium', 'high']);
export type ReasoningEffort = z.infer<typeof ReasoningEffort>;

/** Body of `POST /messages/:sessionId`. */
export const SendMessage = z
  .strictObject({
    message: z.string().min(1).max(200_000).optional(),
    parentId: Id.nullable()
      .optional()
      .describe(
        'The message that this one continues from, `null` for none; default: the last one of the active path. To edit a message, send its own `parentId`',
      ),
    regenerate: Id.optional().describe(
      'Instead of `message`: answer the question of this message again, beside the answers that it has',
    ),
    stream: z.boolean().default(false),
    returnAllMessages: z.boolean().default(false),
    tools: declarations(BrowserTool).optional(),
    agActions: declarations(AgAction).optional(),
    attachments: z.array(SentAttachment).max(10).optional(),
    mcpInvocations: limitedRecord(z.string().min(1).max(256), UcanToken, { max: 32 }).optional(),
    timezone: TimezoneName.optional(),
    homeServer: z.string().max(255).optional().describe('Empty as if it were absent'),
    metadata: JsonObject.optional(),
    model: z.string().min(1).max(200).optional(),
    reasoningEffort: ReasoningEffort.optional().describe(
      'How much the model reasons; ignored by models that do not',
    ),
    responseSchema: JsonObject.optional().describe(
      'JSON Schema of the answer, which then is JSON that fits it; sent as a whole, not in pieces',
    ),
    requestId: RequestId.optional(),
    multitask: Multitask.default('enqueue'),
  })
  .refine(({ message, regenerate }) => message !== undefined || regenerate !== undefined, {
    error: 'is required, unless regenerate names an answer',
    path: ['message'],
  })
  .refine(
    ({ regenerate, message, attachments, parentId }) =>
      regenerate === undefined || [message, attachments, parentId].every((f) => f === undefined),
    {
      error: 'excludes message, attachments and parentId: the question stays as it is',
      path: ['regenerate'],
    },
  )
  .meta({ id: 'SendMessage', anyOf: [{ required: ['message'] }, { required: ['regenerate'] }] });
export type SendMessage = z.infer<typeof SendMessage>;

/** Body of `POST /messages/abort`. */
export const AbortTurn = z.strictObject({ sessionId: Id }).meta({ id: 'AbortTurn' });
export type AbortTurn = z.infer<typeof AbortTurn>;

/** Reply of `POST /messages/abort`: whether a turn of the caller was running in that session. */
export const TurnAborted = z.object({ success: z.boolean() }).meta({ id: 'TurnAborted' });
export type TurnAborted = z.infer<typeof TurnAborted>;

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

/** A result that the page renders, as its `render_component` event described it. */
export const MessageComponent = z
  .object({ id: z.string().optional(), name: z.string(), args: JsonObject.optional() })
  .meta({ id: 'MessageComponent' });
export type MessageComponent = z.infer<typeof MessageComponent>;

/** A piece of a message. */
export const MessagePart = z
  .discriminatedUnion('type', [
    z.object({ type: z.literal('text'), text: z.string() }),
    z.object({ type: z.literal('reasoning'), text: z.string() }),
    z.object({ type: z.literal('tool-call'), call: ToolCall }),
    z.object({ type: z.literal('file'), file: Attachment }),
    z.object({ type: z.literal('component'), component: MessageComponent }),
    z.object({ type: z.literal('citation'), citation: Citation }),
  ])
  .meta({ id: 'MessagePart' });
export type MessagePart = z.infer<typeof MessagePart>;

/** What a user thinks of an answer. */
export const Feedback = z
  .strictObject({
    rating: z.enum(['up', 'down']),
    comment: z.string().trim().min(1).max(2000).optional(),
  })
  .meta({ id: 'Feedback' });
export type Feedback = z.infer<typeof Feedback>;

/** Reply of `DELETE /messages/:sessionId/:messageId/feedback`. */
export const FeedbackDeleted = z.object({ ok: z.literal(true) }).meta({ id: 'FeedbackDeleted' });
export type FeedbackDeleted = z.infer<typeof FeedbackDeleted>;

/** A message as history shows it. */
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
    isComplete: z.boolean().describe('false if the turn did not finish'),
    parts: z
      .array(MessagePart)
      .optional()
      .describe('What the message consists of, in order; absent if it is only its text'),
    parentId: z
      .string()
      .optional()
      .describe('The question of an answer; for a question, the message it continues from'),
    status: z
      .enum(['aborted', 'interrupted', 'failed'])
      .optional()
      .describe('How the turn ended, if it did not finish'),
    error: z
      .object({ code: z.string(), message: z.string(), kind: ErrorKind.optional() })
      .optional()
      .describe('Why the answer is missing or incomplete'),
    siblings: z
      .array(z.string())
      .optional()
      .describe(
        'The ids of all messages that continue from the same one, this one included, oldest first; absent if there are no others',
      ),
    model: z.string().optional().describe('The model that wrote the answer, if it is known'),
    usage: TurnUsage.optional().describe('What the turn of the answer used'),
    feedback: Feedback.optional().describe('What the user thinks of the answer'),
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
    pending: z
      .array(PendingAnswer)
      .optional()
      .describe('What a paused turn waits for; its `status` is `interrupted`'),
    messages: z.array(Message).optional(),
    usage: TurnUsage.optional(),
  })
  .meta({ id: 'Reply' });
export type Reply = z.infer<typeof Reply>;
