import { z } from 'zod';
import { Id, Timestamp } from './identifiers.js';
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
