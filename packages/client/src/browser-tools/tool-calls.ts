import type {
  ActionCallEvent,
  BrowserToolCallEvent,
  ClientEventName,
  ReplyPart,
} from '@sibyl/protocol';
import type { SessionEvents } from '../events/reconnecting-socket.js';
import { parseArguments, type ToolRegistry } from './tool-registry.js';

/** How long the first message waits for the socket that delivers the calls. */
const CONNECT_TIMEOUT_MS = 5_000;

/** Runs the tool calls of one turn. */
export interface CallHandler {
  /** Resolves when the socket is connected, rejected, or too slow, and when the signal is aborted. */
  ready(signal: AbortSignal | undefined): Promise<void>;
  /** Call with every part: a call that has already returned is not run. */
  observe(part: ReplyPart): void;
  close(): void;
}

interface CallHandlerDeps {
  readonly events: SessionEvents;
  readonly calls: PendingCalls;
  readonly tools: ToolRegistry;
}

/** Runs the page's tools when a turn calls them, each call once and in one tab. */
export function handleCalls(
  requestId: string,
  { events, calls, tools }: CallHandlerDeps,
): CallHandler {
  const lock = lockTurn(requestId);
  const returned = new Set<string>();
  /** By the id of the call. */
  const unconfirmed = new Map<string, CallResult>();
  const send = ({ event, payload }: CallResult) => events.emit(event, payload);
  const run = async (incoming: IncomingCall) => {
    const { toolCallId } = incoming.call;
    await lock.held;
    if (returned.has(toolCallId)) return;
    const result = await runCall(incoming, tools);
    if (returned.has(toolCallId)) return;
    unconfirmed.set(toolCallId, result);
    if (events.state !== 'connecting') send(result);
  };
  // What was sent while the connection broke may be lost. The oracle ignores a result that it has.
  events.onState((state) => {
    if (state === 'connected') for (const result of unconfirmed.values()) send(result);
  });
  const unsubscribe = calls.subscribe(requestId, (incoming) => void run(incoming));
  return {
    ready: (signal) => waitUntilReady(events, signal),
    observe: (part) => {
      if (part.event !== 'action_call' && part.event !== 'tool_call') return;
      const { data } = part;
      if (data.status === 'isRunning') return;
      const id = 'eventId' in data ? data.eventId : data.toolCallId;
      returned.add(id);
      unconfirmed.delete(id);
    },
    close: () => {
      unsubscribe();
      lock.release();
      events.close();
    },
  };
}

function waitUntilReady(events: SessionEvents, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', settle);
      resolve();
    };
    const timer = setTimeout(settle, CONNECT_TIMEOUT_MS);
    signal?.addEventListener('abort', settle);
    events.ready().then(settle, settle);
    if (signal?.aborted) settle();
  });
}

/** The result of an action that only renders. */
const SHOWN_RESULT = { shown: true };
const MAX_ERROR_LENGTH = 4_000;
/** Slightly below the server's default limit for a socket message. */
const MAX_RESULT_BYTES = 250_000;

interface CallResult {
  readonly event: ClientEventName;
  readonly payload: object;
}

/** Runs a call; errors become its result. */
async function runCall({ kind, call }: IncomingCall, tools: ToolRegistry): Promise<CallResult> {
  const { sessionId, requestId, toolCallId, toolName, args } = call;
  const called = kind === 'tool' ? tools.getTool(toolName) : tools.getAction(toolName);
  const run = async (): Promise<unknown> => {
    if (!called) throw new Error(`This page has no tool named ${toolName}`);
    const parsed = await parseArguments(called.schema, args);
    if (!called.run) return SHOWN_RESULT;
    return called.run(parsed as never, { sessionId, requestId, toolCallId });
  };
  const result = await captureResult(run);
  return kind === 'tool'
    ? { event: 'tool_result', payload: { toolCallId, ...result } }
    : { event: 'action_call_result', payload: { sessionId, toolCallId, ...result } };
}

async function captureResult(run: () => Promise<unknown>): Promise<object> {
  try {
    // Serialized here: a value that JSON cannot represent would break the connection in the socket.
    const text = JSON.stringify((await run()) ?? null) ?? 'null';
    const bytes = new TextEncoder().encode(text).length;
    if (bytes > MAX_RESULT_BYTES) throw new Error(`The result is too large: ${bytes} bytes`);
    return { result: JSON.parse(text) };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { result: null, error: text.slice(0, MAX_ERROR_LENGTH) || 'The tool failed' };
  }
}

/** Calls kept for turns that are not followed yet. */
const MAX_PENDING = 100;
const MAX_KNOWN_IDS = 1000;

type IncomingCall =
  | { readonly kind: 'tool'; readonly call: BrowserToolCallEvent }
  | { readonly kind: 'action'; readonly call: ActionCallEvent };

/** The calls of a session, each once, kept until their turn is followed. */
export class PendingCalls {
  private readonly known = new Set<string>();
  private readonly handlers = new Map<string, (call: IncomingCall) => void>();
  private pending: IncomingCall[] = [];

  add(incoming: IncomingCall): void {
    const { toolCallId, requestId } = incoming.call;
    if (this.known.has(toolCallId)) return;
    this.remember(toolCallId);
    const handle = this.handlers.get(requestId);
    // After a reload, calls arrive before the page follows the turn.
    if (!handle) this.pending = [...this.pending, incoming].slice(-MAX_PENDING);
    handle?.(incoming);
  }

  /** Delivers the calls of a turn, including pending ones; returns a function that stops it. */
  subscribe(requestId: string, handle: (call: IncomingCall) => void): () => void {
    this.handlers.set(requestId, handle);
    const isOfTurn = ({ call }: IncomingCall) => call.requestId === requestId;
    const early = this.pending.filter(isOfTurn);
    this.pending = this.pending.filter((each) => !isOfTurn(each));
    for (const each of early) handle(each);
    return () => {
      if (this.handlers.get(requestId) === handle) this.handlers.delete(requestId);
    };
  }

  private remember(toolCallId: string): void {
    this.known.add(toolCallId);
    const [oldest] = this.known;
    if (this.known.size > MAX_KNOWN_IDS && oldest !== undefined) this.known.delete(oldest);
  }
}

/** Held by one tab of the browser at a time. */
interface TurnLock {
  /** Resolves when this tab holds the lock: now, or when the tab that holds it is gone. */
  readonly held: Promise<void>;
  release(): void;
}

/** Requests the lock of a turn; without the Web Locks API every tab holds it. */
function lockTurn(requestId: string): TurnLock {
  const locks = globalThis.navigator?.locks;
  if (!locks) return { held: Promise.resolve(), release: () => undefined };
  const releasing = new AbortController();
  const released = new Promise<void>((resolve) => {
    releasing.signal.addEventListener('abort', () => resolve());
  });
  const held = new Promise<void>((resolve) => {
    locks
      .request(`sibyl:${requestId}`, { signal: releasing.signal }, () => {
        resolve();
        return released;
      })
      // Released before it was granted.
      .catch(() => undefined);
  });
  return { held, release: () => releasing.abort() };
}
