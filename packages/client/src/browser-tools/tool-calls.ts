import type {
  ActionCallEvent,
  BrowserToolCallEvent,
  ClientEventName,
  ReplyPart,
} from '@sibyl/protocol';
import type { SessionEvents } from '../events/session-events.js';
import { parseArguments, type ToolRegistry } from './tool-registry.js';

/** How long the first message waits for the socket that calls come through. */
const CONNECT_TIMEOUT_MS = 5_000;

/** The page's part in a turn: answering the calls of its functions. */
export interface CallHandler {
  /** Resolves when calls can come in, or when it is no use waiting. */
  ready(): Promise<void>;
  /** To be told every part: a call that has returned needs no answer. */
  observe(part: ReplyPart): void;
  close(): void;
}

interface CallHandlerDeps {
  readonly events: SessionEvents;
  readonly calls: PendingCalls;
  readonly functions: ToolRegistry;
}

/** Runs the page's functions when a turn calls them, each call once and in one tab. */
export function handleCalls(
  requestId: string,
  { events, calls, functions }: CallHandlerDeps,
): CallHandler {
  const lock = lockTurn(requestId);
  const returned = new Set<string>();
  const take = async (incoming: IncomingCall) => {
    await lock.held;
    if (returned.has(incoming.call.toolCallId)) return;
    const { event, payload } = await runCall(incoming, functions);
    events.emit(event, payload);
  };
  const leave = calls.subscribe(requestId, (incoming) => void take(incoming));
  return {
    ready: () => waitUntilReady(CONNECT_TIMEOUT_MS, events),
    observe: (part) => {
      if (part.event !== 'action_call' && part.event !== 'tool_call') return;
      const { data } = part;
      if (data.status === 'isRunning') return;
      returned.add('eventId' in data ? data.eventId : data.toolCallId);
    },
    close: () => {
      leave();
      lock.release();
      events.close();
    },
  };
}

function waitUntilReady(ms: number, events: SessionEvents): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      clearTimeout(timer);
      resolve();
    };
    const timer = setTimeout(settle, ms);
    events.ready().then(settle, settle);
  });
}

/** What the model is told of an action that only shows something. */
const SHOWN_RESULT = { shown: true };
const MAX_ERROR_LENGTH = 4_000;
/** A little under what hosts take in one message of a socket, unless configured. */
const MAX_RESULT_BYTES = 250_000;

/** What is to be sent to the host. */
interface CallResult {
  readonly event: ClientEventName;
  readonly payload: object;
}

/** Runs what was called; whatever goes wrong is an answer too. */
async function runCall({ kind, call }: IncomingCall, functions: ToolRegistry): Promise<CallResult> {
  const { sessionId, requestId, toolCallId, toolName, args } = call;
  const called = kind === 'tool' ? functions.tool(toolName) : functions.action(toolName);
  const run = async (): Promise<unknown> => {
    if (!called) throw new Error(`This page does not offer ${toolName}`);
    const checked = await parseArguments(called.schema, args);
    if (!called.run) return SHOWN_RESULT;
    return called.run(checked as never, { sessionId, requestId, toolCallId });
  };
  const outcome = await captureResult(run);
  return kind === 'tool'
    ? { event: 'tool_result', payload: { toolCallId, ...outcome } }
    : { event: 'action_call_result', payload: { sessionId, toolCallId, ...outcome } };
}

async function captureResult(run: () => Promise<unknown>): Promise<object> {
  try {
    // What cannot be sent is told to the model now; inside the socket it would break the connection.
    const text = JSON.stringify((await run()) ?? null) ?? 'null';
    const bytes = new TextEncoder().encode(text).length;
    if (bytes > MAX_RESULT_BYTES) throw new Error(`The result is too large: ${bytes} bytes`);
    return { result: JSON.parse(text) };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { result: null, error: text.slice(0, MAX_ERROR_LENGTH) || 'The function failed' };
  }
}

/** The most that is kept of calls nobody here has asked for, and of ids of those that were. */
const MAX_PENDING = 100;
const MAX_KNOWN_IDS = 1000;

/** A call of something the page offers. */
type IncomingCall =
  | { readonly kind: 'tool'; readonly call: BrowserToolCallEvent }
  | { readonly kind: 'action'; readonly call: ActionCallEvent };

/** The calls that come in for a session, each once, until somebody attends the turn they are of. */
export class PendingCalls {
  private readonly known = new Set<string>();
  private readonly takers = new Map<string, (call: IncomingCall) => void>();
  private waiting: IncomingCall[] = [];

  add(incoming: IncomingCall): void {
    const { toolCallId, requestId } = incoming.call;
    if (this.known.has(toolCallId)) return;
    this.remember(toolCallId);
    const take = this.takers.get(requestId);
    // A page that was reloaded is called before it knows of the turn.
    if (!take) this.waiting = [...this.waiting, incoming].slice(-MAX_PENDING);
    take?.(incoming);
  }

  /** Hands over the calls of a turn, also those that came before; returns what ends it. */
  subscribe(requestId: string, take: (call: IncomingCall) => void): () => void {
    this.takers.set(requestId, take);
    const isOfTurn = ({ call }: IncomingCall) => call.requestId === requestId;
    const early = this.waiting.filter(isOfTurn);
    this.waiting = this.waiting.filter((each) => !isOfTurn(each));
    for (const each of early) take(each);
    return () => {
      if (this.takers.get(requestId) === take) this.takers.delete(requestId);
    };
  }

  private remember(toolCallId: string): void {
    this.known.add(toolCallId);
    const [oldest] = this.known;
    if (this.known.size > MAX_KNOWN_IDS && oldest !== undefined) this.known.delete(oldest);
  }
}

/** The right to act for a turn: one tab of a browser has it at a time. */
interface TurnLock {
  /** Resolves when this tab may act: at once, or when the one that could has gone. */
  readonly held: Promise<void>;
  release(): void;
}

/** Asks for the right to act for a turn; where tabs cannot agree, everybody has it. */
function lockTurn(requestId: string): TurnLock {
  const locks = globalThis.navigator?.locks;
  if (!locks) return { held: Promise.resolve(), release: () => undefined };
  const leaving = new AbortController();
  const left = new Promise<void>((resolve) => {
    leaving.signal.addEventListener('abort', () => resolve());
  });
  const held = new Promise<void>((resolve) => {
    locks
      .request(`sibyl:${requestId}`, { signal: leaving.signal }, () => {
        resolve();
        return left;
      })
      // Left before it was given.
      .catch(() => undefined);
  });
  return { held, release: () => leaving.abort() };
}
