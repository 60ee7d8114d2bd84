import {
  ActionCallResult,
  type ClientEventName,
  clientEvents,
  describeIssues,
  type ServerEventName,
  serverEvents,
  ToolResult,
} from '@sibyl/protocol';
import { z } from 'zod';
import type { CallEventName, ClientCallResult, ServerEvent, SessionKey } from '../bus/event-bus.js';
import type { ConnectionRegistry } from './connections.js';

type ClientRequestName = Exclude<ClientEventName, 'tool_result' | 'action_call_result'>;

/** Answers the requests of clients. */
export const clientRequests: Readonly<
  Record<ClientRequestName, (session: SessionKey, registry: ConnectionRegistry) => ServerEvent>
> = {
  ping: ({ sessionId }) => ({ event: 'pong', payload: { timestamp: now(), sessionId } }),
  status: ({ owner, sessionId }, registry) => ({
    event: 'status',
    payload: {
      connected: true,
      sessionId,
      ...registry.countFor(owner),
      timestamp: now(),
    },
  }),
  subscribe: ({ sessionId }) => ({ event: 'subscribed', payload: { sessionId, timestamp: now() } }),
  'list-events': ({ sessionId }) => ({
    event: 'available-events',
    payload: {
      clientEvents: Object.keys(clientEvents) as ClientEventName[],
      serverEvents: Object.keys(serverEvents) as ServerEventName[],
      sessionId,
      timestamp: now(),
    },
  }),
};

/** Read what a page sends as the result of a call, by the kind of call. */
export const resultReaders = {
  tool_result: (sent: unknown) => readResult(sent, ToolResult, 'browser_tool_call'),
  action_call_result: (sent: unknown, { sessionId }: SessionKey) => {
    const answer = readResult(sent, ActionCallResult, 'action_call');
    const isForSession = (sent as { sessionId?: unknown } | null)?.sessionId === sessionId;
    return answer && isForSession ? readFailure(answer) : undefined;
  },
} as const satisfies Record<
  string,
  (sent: unknown, session: SessionKey) => ClientCallResult | undefined
>;

/** An invalid result also ends the call, if it names one: no other result will follow. */
function readResult(
  sent: unknown,
  schema: z.ZodType<ToolResult>,
  event: CallEventName,
): ClientCallResult | undefined {
  const { data, error } = schema.safeParse(sent);
  if (data) {
    const { toolCallId, result = null, error: fault } = data;
    return { event, toolCallId, result, ...(typeof fault === 'string' && { error: fault }) };
  }
  const { toolCallId } = (sent ?? {}) as { toolCallId?: unknown };
  if (typeof toolCallId !== 'string') return undefined;
  const issues = describeIssues(error.issues, 'result');
  const reason = `The page sent an invalid result: ${issues.join('; ')}`;
  return { event, toolCallId, result: null, error: reason };
}

/** An action may also report a failure as the result `{success: false, error}`. */
function readFailure(answer: ClientCallResult): ClientCallResult {
  const { data } = FailedAction.safeParse(answer.result);
  return data && answer.error === undefined ? { ...answer, error: data.error } : answer;
}

const FailedAction = z.object({ success: z.literal(false), error: z.string() });

const now = () => new Date().toISOString();
