import type { DoneFrame, PendingAnswer, ReplyPart } from '@sibyl/protocol';
import { ChangeSignal } from '@sibyl/server-kit';
import type { Frame } from '../../store/runs/frames.js';
import type { Run } from '../../store/runs/run.js';
import type { TokenUsage } from '../../store/schema/runs.js';

/** Memory of a frame without its text, which has two bytes for each character. */
const FRAME_BYTES = 104;

/** The frames of a running turn in memory, for any number of readers at their own pace. */
export class RunLog {
  private readonly frames: Frame[] = [];
  private readonly changed = new ChangeSignal();
  private isClosed = false;
  private detached: Error | undefined;
  private frameBytes = 0;

  constructor(private readonly onFrame: (frame: Frame) => void = () => {}) {}

  /** Estimated memory of the frames. */
  get bytes(): number {
    return this.frameBytes;
  }

  get lastSeq(): number {
    return this.frames.length;
  }

  add(event: string, data: string): Frame {
    const frame = { seq: this.frames.length + 1, event, data };
    this.frames.push(frame);
    this.frameBytes += FRAME_BYTES + 2 * data.length;
    this.changed.notify();
    this.onFrame(frame);
    return frame;
  }

  /** Begins with frames that are already stored. */
  load(frames: readonly Frame[]): void {
    for (const frame of frames) {
      this.frames.push(frame);
      this.frameBytes += FRAME_BYTES + 2 * frame.data.length;
    }
  }

  /** Returns the frames after `after`. */
  since(after: number): readonly Frame[] {
    return this.frames.slice(after);
  }

  /** Makes readers fail: another host continues the log. */
  detach(error: Error): void {
    this.detached = error;
    this.close();
  }

  /** Ends the log: no frame follows. */
  close(): void {
    this.isClosed = true;
    this.changed.notify();
  }

  /**
   * Yields the frames after `after`, then new ones, until the log closes, or the signal is aborted and the reader does
   * not stay for the end.
   */
  async *read(
    after: number,
    signal: AbortSignal,
    staysForEnd: () => boolean = () => false,
  ): AsyncGenerator<readonly Frame[]> {
    const wake = () => this.changed.notify();
    signal.addEventListener('abort', wake, { once: true });
    try {
      let seen = Math.min(after, this.frames.length);
      while (!signal.aborted || staysForEnd()) {
        const fresh = this.frames.slice(seen);
        seen += fresh.length;
        if (fresh.length > 0) yield fresh;
        else if (this.detached) throw this.detached;
        else if (this.isClosed) return;
        else await this.changed.wait();
      }
    } finally {
      signal.removeEventListener('abort', wake);
    }
  }
}

/** Frames of parts, numbered from `from`. */
export const toFrames = (parts: readonly ReplyPart[], from: number): Frame[] =>
  parts.map(({ event, data }, i) => ({ seq: from + i, event, data: JSON.stringify(data) }));

interface DoneFields {
  readonly runId: string;
  readonly messageId: string | undefined;
  readonly status: DoneFrame['status'];
  /** The answer, possibly incomplete. */
  readonly text: string;
  /** What a paused run waits for. */
  readonly pending?: readonly PendingAnswer[] | undefined;
  readonly usage?: TokenUsage | undefined;
}

/** Builds the first frame of a run. */
export function buildRunFrame({ runId, sessionId, requestId }: Run) {
  return { event: 'run', data: { runId, sessionId, requestId } } as const satisfies ReplyPart;
}

/** Builds the frame after which readers continue with another attempt, or after a crash: they keep `partial`. */
export function buildResumedFrame(run: Run, partial: string) {
  const { event, data } = buildRunFrame(run);
  const { attempt } = run;
  return {
    event,
    data: { ...data, resumed: true, attempt, partialLength: partial.length },
  } as const satisfies ReplyPart;
}

/** Builds the last frame of a run. */
export function buildDoneFrame({ runId, messageId, status, text, pending, usage }: DoneFields) {
  const data: DoneFrame = {
    runId,
    ...(messageId !== undefined && { messageId }),
    status,
    ...(status !== 'finished' && { [status]: true, partialText: text }),
    ...(pending && { pending: [...pending] }),
    ...toUsageField(usage),
  };
  return { event: 'done', data } as const satisfies ReplyPart;
}

/** The usage of a run as clients see it; nothing if no model was called. */
export function toUsageField(usage: TokenUsage | undefined): Pick<DoneFrame, 'usage'> {
  if (!usage || usage.input + usage.output === 0) return {};
  const { input: inputTokens, output: outputTokens, cached: cachedTokens, cost } = usage;
  return {
    usage: { inputTokens, outputTokens, cachedTokens, ...(cost !== undefined && { cost }) },
  };
}

/** Builds the frame that makes clients reload a run that is stored differently than it was shown. */
export function buildCacheInvalidation(
  { sessionId, requestId }: Pick<Run, 'sessionId' | 'requestId'>,
  messageId?: string,
) {
  return {
    event: 'message_cache_invalidation',
    data: {
      sessionId,
      requestId,
      ...(messageId !== undefined && { messageIds: [messageId] }),
      status: 'done',
    },
  } as const satisfies ReplyPart;
}
