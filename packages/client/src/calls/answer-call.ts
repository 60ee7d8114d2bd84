import type { ClientEventName } from '@sibyl/protocol';
import type { PageCall } from './call-box.js';
import { checkArguments } from './check-arguments.js';
import type { PageFunctions } from './page-functions.js';

/** What the model is told of an action that only shows something. */
const SHOWN = { shown: true };
const LONGEST_ERROR = 4_000;
/** A little under what hosts take in one message of a socket, unless configured. */
const MOST_BYTES = 250_000;

/** What is to be sent to the host. */
export interface CallAnswer {
  readonly event: ClientEventName;
  readonly payload: object;
}

/** Runs what was called; whatever goes wrong is an answer too. */
export async function answerCall(
  { kind, call }: PageCall,
  functions: PageFunctions,
): Promise<CallAnswer> {
  const { sessionId, requestId, toolCallId, toolName, args } = call;
  const called = kind === 'tool' ? functions.tool(toolName) : functions.action(toolName);
  const run = async (): Promise<unknown> => {
    if (!called) throw new Error(`This page does not offer ${toolName}`);
    const checked = await checkArguments(called.schema, args);
    if (!called.run) return SHOWN;
    return called.run(checked as never, { sessionId, requestId, toolCallId });
  };
  const outcome = await outcomeOf(run);
  return kind === 'tool'
    ? { event: 'tool_result', payload: { toolCallId, ...outcome } }
    : { event: 'action_call_result', payload: { sessionId, toolCallId, ...outcome } };
}

async function outcomeOf(run: () => Promise<unknown>): Promise<object> {
  try {
    // What cannot be sent is told to the model now; inside the socket it would break the connection.
    const text = JSON.stringify((await run()) ?? null) ?? 'null';
    const bytes = new TextEncoder().encode(text).length;
    if (bytes > MOST_BYTES) throw new Error(`The result is too large: ${bytes} bytes`);
    return { result: JSON.parse(text) };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { result: null, error: text.slice(0, LONGEST_ERROR) || 'The function failed' };
  }
}
