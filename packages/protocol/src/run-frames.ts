import { z } from 'zod';
import { Id, Timestamp, wholeNumber } from './identifiers.js';
import { JsonObject } from './json.js';

const inTurn = { sessionId: Id, requestId: z.string() };
const CallStatus = z.enum(['isRunning', 'done', 'error']);
const outcome = { output: z.string().optional(), error: z.string().optional() };

/** A tool is being invoked, or has returned. */
export const ToolCallEvent = z
  .object({
    ...inTurn,
    eventId: z.string(),
    toolName: z.string(),
    args: JsonObject,
    status: CallStatus,
    ...outcome,
  })
  .meta({ id: 'ToolCallEvent' });
export type ToolCallEvent = z.infer<typeof ToolCallEvent>;

/** An AG-UI action of the user's page is being invoked, or has returned. */
export const ActionCallEvent = z
  .object({
    ...inTurn,
    toolCallId: z.string(),
    toolName: z.string(),
    args: JsonObject,
    status: CallStatus,
    ...outcome,
  })
  .meta({ id: 'ActionCallEvent' });
export type ActionCallEvent = z.infer<typeof ActionCallEvent>;

/** Run this on the user's tab. */
export const BrowserToolCallEvent = z
  .object({ ...inTurn, toolCallId: z.string(), toolName: z.string(), args: JsonObject })
  .meta({ id: 'BrowserToolCallEvent' });
export type BrowserToolCallEvent = z.infer<typeof BrowserToolCallEvent>;

/** A result is ready to render. */
export const RenderComponentEvent = z
  .object({
    ...inTurn,
    eventId: z.string(),
    componentName: z.string(),
    args: JsonObject.optional(),
    status: CallStatus,
  })
  .meta({ id: 'RenderComponentEvent' });
export type RenderComponentEvent = z.infer<typeof RenderComponentEvent>;

/** A routing decision between agents or sub-agents. */
export const RouterUpdateEvent = z
  .object({ ...inTurn, from: z.string().optional(), to: z.string().optional(), step: z.string() })
  .meta({ id: 'RouterUpdateEvent' });
export type RouterUpdateEvent = z.infer<typeof RouterUpdateEvent>;

/** Stored messages changed: drop what is cached of them. */
export const MessageCacheInvalidationEvent = z
  .object({ ...inTurn, messageIds: z.array(z.string()).optional(), status: z.literal('done') })
  .meta({ id: 'MessageCacheInvalidationEvent' });
export type MessageCacheInvalidationEvent = z.infer<typeof MessageCacheInvalidationEvent>;

/** What the model thought before it answered. */
export const ReasoningEvent = z
  .object({ ...inTurn, reasoning: z.string(), isComplete: z.boolean(), timestamp: Timestamp })
  .meta({ id: 'ReasoningEvent' });
export type ReasoningEvent = z.infer<typeof ReasoningEvent>;

/** A tool call waits for the approval of the user. */
export const ApprovalRequestEvent = z
  .object({
    ...inTurn,
    approvalId: Id,
    runId: Id,
    toolCallId: z.string(),
    toolName: z.string(),
    plugin: z.string(),
    args: JsonObject,
    argsHash: z.string().describe('SHA-256 of the canonical JSON of `args`'),
    requiredBy: z.enum(['tool', 'operator', 'rules']),
    expiresAt: Timestamp,
    timestamp: Timestamp,
  })
  .describe('A tool call waits for the approval of the user: `POST /approvals/:id`')
  .meta({ id: 'ApprovalRequestEvent' });
export type ApprovalRequestEvent = z.infer<typeof ApprovalRequestEvent>;

/** Where a run stands. */
export const RunStatus = z.enum([
  'queued',
  'running',
  'paused',
  'finished',
  'aborted',
  'interrupted',
  'failed',
  'continued',
]);
export type RunStatus = z.infer<typeof RunStatus>;

/** A turn as `GET /sessions/:sessionId/run` shows it. */
export const Run = z
  .object({
    runId: Id,
    sessionId: Id,
    requestId: z.string(),
    status: RunStatus,
    startedAt: Timestamp,
    updatedAt: Timestamp,
    lastSeq: z.int().min(0),
    messageId: z.string().optional(),
    questionId: z
      .string()
      .optional()
      .describe('The question, if an earlier turn has asked it: this one answers it again'),
  })
  .meta({ id: 'Run' });
export type Run = z.infer<typeof Run>;

/** Reply of `GET /sessions/:sessionId/run`. */
export const CurrentRun = z.object({ run: Run.nullable() }).meta({ id: 'CurrentRun' });
export type CurrentRun = z.infer<typeof CurrentRun>;

/** Reply of `DELETE /runs/:runId`. */
export const MessageWithdrawn = z.object({ message: z.string() }).meta({ id: 'MessageWithdrawn' });
export type MessageWithdrawn = z.infer<typeof MessageWithdrawn>;

/** Query of `GET /runs/:runId`. */
export const JoinRun = z.strictObject({
  after: wholeNumber({ min: 0 }).optional(),
});
export type JoinRun = z.infer<typeof JoinRun>;

export const RunFrame = z
  .object({
    runId: Id,
    sessionId: Id,
    requestId: z.string(),
    resumed: z.boolean().optional(),
    attempt: z.int().min(1).optional(),
    partialLength: z.int().min(0).optional(),
  })
  .describe('First; if `resumed`, a client truncates its text to `partialLength`');
export type RunFrame = z.infer<typeof RunFrame>;

export const TextFrame = z
  .object({ content: z.string(), timestamp: Timestamp })
  .describe('A piece of the answer');
export type TextFrame = z.infer<typeof TextFrame>;

/** Where a statement of an answer comes from. */
export const Citation = z
  .object({
    title: z.string(),
    url: z.string().optional(),
    fileId: z.string().optional().describe('A file of the user'),
    position: z.string().optional().describe('Where in the source, such as a page or a line'),
    quote: z.string().optional(),
    marker: z.string().optional().describe('What refers to it in the text, such as `[1]`'),
  })
  .meta({ id: 'Citation' });
export type Citation = z.infer<typeof Citation>;

export const CitationFrame = z
  .object({ sessionId: Id, requestId: z.string(), citation: Citation })
  .describe('A source of the answer; it becomes a part of the message');
export type CitationFrame = z.infer<typeof CitationFrame>;

export const WarningFrame = z
  .object({
    code: z.string(),
    message: z.string(),
    sessionId: Id,
    requestId: z.string(),
    timestamp: Timestamp,
  })
  .describe('Something was left out; the turn continues');
export type WarningFrame = z.infer<typeof WarningFrame>;

/** What kind of fault ended a turn. */
export const ErrorKind = z.enum([
  'rate_limit',
  'billing',
  'auth',
  'timeout',
  'server',
  'network',
  'unknown',
]);
export type ErrorKind = z.infer<typeof ErrorKind>;

export const ErrorFrame = z
  .object({
    error: z.string(),
    kind: ErrorKind,
    code: z.string().optional().describe('As in error answers, such as `turn_too_long`'),
    retryable: z.boolean(),
    sessionId: Id,
    requestId: z.string(),
    timestamp: Timestamp,
  })
  .describe('The turn failed; `retryable` if sending again may help; `done` follows');
export type ErrorFrame = z.infer<typeof ErrorFrame>;

/** An answer that a paused turn needs. */
export const PendingAnswer = z
  .object({ id: Id, kind: z.enum(['tool_call', 'confirmation', 'input_required']) })
  .meta({ id: 'PendingAnswer' });
export type PendingAnswer = z.infer<typeof PendingAnswer>;

/** What a turn spent on models, titles not included. */
export const TurnUsage = z
  .object({
    inputTokens: z.int().min(0),
    outputTokens: z.int().min(0),
    cachedTokens: z.int().min(0).describe('The part of `inputTokens` that came from a cache'),
    cost: z.number().min(0).optional().describe('In the currency of the configured prices'),
  })
  .meta({ id: 'TurnUsage' });
export type TurnUsage = z.infer<typeof TurnUsage>;

export const DoneFrame = z
  .object({
    runId: Id,
    messageId: z.string().optional(),
    status: z.enum(['finished', 'aborted', 'interrupted', 'failed']),
    aborted: z.boolean().optional(),
    interrupted: z.boolean().optional(),
    failed: z.boolean().optional(),
    partialText: z.string().optional(),
    pending: z
      .array(PendingAnswer)
      .optional()
      .describe('What the turn waits for; it continues as another run once everything is answered'),
    usage: TurnUsage.optional(),
  })
  .describe('Always last, however the turn ends');
export type DoneFrame = z.infer<typeof DoneFrame>;

/** SSE event name → its data. */
export const runFrames = {
  run: RunFrame,
  reasoning: ReasoningEvent,
  message: TextFrame,
  tool_call: ToolCallEvent,
  action_call: ActionCallEvent,
  browser_tool_call: BrowserToolCallEvent,
  render_component: RenderComponentEvent,
  router_update: RouterUpdateEvent,
  message_cache_invalidation: MessageCacheInvalidationEvent,
  approval_request: ApprovalRequestEvent,
  citation: CitationFrame,
  warning: WarningFrame,
  error: ErrorFrame,
  done: DoneFrame,
} as const;

export type RunFrameName = keyof typeof runFrames;

/** One frame of a reply: its SSE event name and data. */
export type ReplyPart = {
  [Name in RunFrameName]: {
    readonly event: Name;
    readonly data: z.infer<(typeof runFrames)[Name]>;
  };
}[RunFrameName];
