import { z } from 'zod';
import { Id, Timestamp, UcanToken } from './identifiers.js';
import {
  ActionCallEvent,
  ApprovalRequestEvent,
  BrowserToolCallEvent,
  MessageCacheInvalidationEvent,
  ReasoningEvent,
  RenderComponentEvent,
  RouterUpdateEvent,
  ToolCallEvent,
} from './run-frames.js';
import { SessionsChangedEvent } from './sessions.js';

/** What a socket presents when it connects. */
export const Handshake = z.object({
  sessionId: Id,
  invocation: UcanToken.optional(),
  ucanDelegation: UcanToken.optional(),
});
export type Handshake = z.infer<typeof Handshake>;

const Connected = z.object({ message: z.string(), sessionId: Id, timestamp: Timestamp });
const Pong = z.object({ timestamp: Timestamp, sessionId: Id });
const Status = z.object({
  connected: z.boolean(),
  sessionId: Id,
  activeSessions: z.int(),
  totalConnections: z.int(),
  timestamp: Timestamp,
});
const Subscribed = z.object({ sessionId: Id, timestamp: Timestamp });
/** Why the server ends a connection; after `token_expired` a fresh token picks up where it stopped. */
export const ClosingReason = z.enum([
  'token_expired',
  'token_revoked',
  'caller_not_allowed',
  'session_deleted',
  'rate_limited',
  'host_stopping',
]);
export type ClosingReason = z.infer<typeof ClosingReason>;

const Closing = z.object({
  reason: ClosingReason,
  message: z.string(),
  sessionId: Id,
  timestamp: Timestamp,
});
const AvailableEvents = z.object({
  clientEvents: z.array(z.string()),
  serverEvents: z.array(z.string()),
  sessionId: Id,
  timestamp: Timestamp,
});

/**
 * What a call of the page came to. JSON drops `undefined`, so a function that returns nothing sends no
 * `result`; only `error` makes it a failure.
 */
const callOutcome = { result: z.unknown().optional(), error: z.string().nullish() };

/** The outcome of a `browser_tool_call`. */
export const ToolResult = z.object({
  toolCallId: z.string().min(1).max(128),
  ...callOutcome,
});
export type ToolResult = z.infer<typeof ToolResult>;

/** The outcome of an `action_call`. */
export const ActionCallResult = z.object({
  sessionId: Id,
  toolCallId: z.string().min(1).max(128),
  ...callOutcome,
});
export type ActionCallResult = z.infer<typeof ActionCallResult>;

/** How a server event travels: as its payload, or inside `{eventName, payload}`. */
type Wrapping = 'bare' | 'enveloped';

interface ServerEvent {
  readonly summary: string;
  readonly wrapping: Wrapping;
  readonly payload: z.ZodType;
}

/** Every event the server sends. */
export const serverEvents = {
  connected: { summary: 'The handshake succeeded', wrapping: 'bare', payload: Connected },
  pong: { summary: 'Answer to ping', wrapping: 'bare', payload: Pong },
  status: { summary: "The caller's own connections", wrapping: 'bare', payload: Status },
  subscribed: { summary: 'Answer to subscribe', wrapping: 'bare', payload: Subscribed },
  'available-events': { summary: 'This catalog', wrapping: 'bare', payload: AvailableEvents },
  closing: {
    summary: 'The server ends this connection, and why',
    wrapping: 'bare',
    payload: Closing,
  },
  tool_call: {
    summary: 'A tool is being invoked, or has returned',
    wrapping: 'enveloped',
    payload: ToolCallEvent,
  },
  action_call: {
    summary: 'An AG-UI action is being invoked',
    wrapping: 'bare',
    payload: ActionCallEvent,
  },
  render_component: {
    summary: 'A result is ready to render',
    wrapping: 'enveloped',
    payload: RenderComponentEvent,
  },
  browser_tool_call: {
    summary: "Run this on the user's tab",
    wrapping: 'bare',
    payload: BrowserToolCallEvent,
  },
  router_update: {
    summary: 'A routing decision between agents or sub-agents',
    wrapping: 'bare',
    payload: RouterUpdateEvent,
  },
  message_cache_invalidation: {
    summary: 'Stored messages changed: drop what is cached of them',
    wrapping: 'enveloped',
    payload: MessageCacheInvalidationEvent,
  },
  approval_request: {
    summary: 'A tool call waits for the approval of the user',
    wrapping: 'bare',
    payload: ApprovalRequestEvent,
  },
  sessions_changed: {
    summary: "The list of the caller's sessions changed, on any host",
    wrapping: 'bare',
    payload: SessionsChangedEvent,
  },
  reasoning: {
    summary: 'What the model thought before it answered',
    wrapping: 'bare',
    payload: ReasoningEvent,
  },
} as const satisfies Record<string, ServerEvent>;

export type ServerEventName = keyof typeof serverEvents;

const Nothing = z.unknown();

/** Every event a client may send. */
export const clientEvents = {
  ping: { summary: 'Ask for a pong', payload: Nothing },
  status: { summary: "Ask for the caller's own connections", payload: Nothing },
  subscribe: { summary: "Ask to receive the session's events", payload: Nothing },
  'list-events': { summary: 'Ask for the event catalog', payload: Nothing },
  tool_result: { summary: 'The outcome of a browser_tool_call', payload: ToolResult },
  action_call_result: { summary: 'The outcome of an action_call', payload: ActionCallResult },
} as const satisfies Record<string, { summary: string; payload: z.ZodType }>;

export type ClientEventName = keyof typeof clientEvents;
