import type { ReplyPart } from '@sibyl/protocol';
import type { SessionEvents } from '../events/session-events.js';
import { answerCall } from './answer-call.js';
import type { CallBox, PageCall } from './call-box.js';
import type { PageFunctions } from './page-functions.js';
import { lockTurn } from './turn-lock.js';

/** How long the first message waits for the socket that calls come through. */
const CONNECT_MS = 5_000;

/** The page's part in a turn: answering the calls of its functions. */
export interface Attendance {
  /** Resolves when calls can come in, or when it is no use waiting. */
  ready(): Promise<void>;
  /** To be told every part: a call that has returned needs no answer. */
  see(part: ReplyPart): void;
  end(): void;
}

interface AttendanceParts {
  readonly events: SessionEvents;
  readonly calls: CallBox;
  readonly functions: PageFunctions;
}

/** Runs the page's functions when a turn calls them, each call once and in one tab. */
export function attendTurn(
  requestId: string,
  { events, calls, functions }: AttendanceParts,
): Attendance {
  const lock = lockTurn(requestId);
  const returned = new Set<string>();
  const take = async (incoming: PageCall) => {
    await lock.held;
    if (returned.has(incoming.call.toolCallId)) return;
    const { event, payload } = await answerCall(incoming, functions);
    events.emit(event, payload);
  };
  const leave = calls.attend(requestId, (incoming) => void take(incoming));
  return {
    ready: () => readyWithin(CONNECT_MS, events),
    see: (part) => {
      if (part.event !== 'action_call' && part.event !== 'tool_call') return;
      const { data } = part;
      if (data.status === 'isRunning') return;
      returned.add('eventId' in data ? data.eventId : data.toolCallId);
    },
    end: () => {
      leave();
      lock.release();
      events.close();
    },
  };
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
