import type { ActionCallEvent, BrowserToolCallEvent, ReplyPart } from '@sibyl/protocol';
import type { SessionEvents } from '../events/session-events.js';
import { checkArguments } from './check-arguments.js';
import type { PageFunctions } from './page-functions.js';
import { lockTurn } from './turn-lock.js';

/** How long the first message waits for the socket that calls come through. */
const CONNECT_MS = 5_000;
const LONGEST_ERROR = 4_000;
/** What the model is told of an action that only shows something. */
const SHOWN = { shown: true };

export interface TurnInSession {
  readonly sessionId: string;
  readonly requestId: string;
}

/** The page's part in a turn: answering the calls of its functions. */
export interface Attendance {
  /** Resolves when calls can come in, or when it is no use waiting. */
  ready(): Promise<void>;
  /** To be told every part: a call that has returned needs no answer. */
  see(part: ReplyPart): void;
  end(): void;
}

type Call = BrowserToolCallEvent | ActionCallEvent;
type Answer = { readonly result: unknown; readonly error?: string };

/** Runs the page's functions when a turn calls them, each call once and in one tab. */
export function attendTurn(
  { sessionId, requestId }: TurnInSession,
  events: SessionEvents,
  functions: PageFunctions,
): Attendance {
  const lock = lockTurn(requestId);
  const returned = new Set<string>();
  const taken = new Set<string>();
  const take = async (call: Call, run: () => Promise<void>) => {
    const { toolCallId } = call;
    if (call.requestId !== requestId || taken.has(toolCallId)) return;
    taken.add(toolCallId);
    await lock.held;
    if (!returned.has(toolCallId)) await run();
  };
  events.on('browser_tool_call', (call) => {
    void take(call, async () => {
      const { toolCallId } = call;
      events.emit('tool_result', {
        toolCallId,
        ...(await answer(functions.tool(call.toolName), call)),
      });
    });
  });
  events.on('action_call', (call) => {
    if (call.status !== 'isRunning') return;
    void take(call, async () => {
      const action = functions.action(call.toolName);
      const { toolCallId } = call;
      events.emit('action_call_result', { sessionId, toolCallId, ...(await answer(action, call)) });
    });
  });
  return {
    ready: () => readyWithin(CONNECT_MS, events),
    see: (part) => {
      if (part.event !== 'action_call' && part.event !== 'tool_call') return;
      const { data } = part;
      if (data.status !== 'isRunning')
        returned.add('eventId' in data ? data.eventId : data.toolCallId);
    },
    end: () => {
      lock.release();
      events.close();
    },
  };
}

type Runnable = NonNullable<ReturnType<PageFunctions['tool'] | PageFunctions['action']>>;

async function answer(
  called: Runnable | undefined,
  { sessionId, requestId, toolCallId, toolName, args }: Call,
): Promise<Answer> {
  try {
    if (!called) throw new Error(`This page does not offer ${toolName}`);
    const checked = await checkArguments(called.schema, args);
    const call = { sessionId, requestId, toolCallId };
    const result = called.run ? await called.run(checked as never, call) : SHOWN;
    // What cannot be written as JSON is told to the model now, not thrown inside the socket later.
    return { result: JSON.parse(JSON.stringify(result ?? null)) };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { result: null, error: text.slice(0, LONGEST_ERROR) || 'The function failed' };
  }
}

function readyWithin(ms: number, events: SessionEvents): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(settle, ms);
    events.ready().then(settle, settle);
  });
}
