import type {
  DoneFrame,
  ErrorFrame,
  JsonObject,
  RenderComponentEvent,
  ReplyPart,
  RouterUpdateEvent,
  WarningFrame,
} from '@sibyl/protocol';

/** A call of a tool, of a browser tool or of an action, as far as it has come. */
export interface Call {
  readonly id: string;
  readonly kind: 'tool' | 'browser-tool' | 'action';
  readonly name: string;
  readonly args: JsonObject;
  readonly status: 'running' | 'done' | 'error';
  /** JSON text of the result. */
  readonly output?: string;
  readonly error?: string;
}

/** What the parts of a stream add up to. */
export interface Turn {
  readonly runId?: string;
  readonly requestId?: string;
  /** `waiting` until anything but the first frame has come: the turn may be queued. */
  readonly status: 'waiting' | 'running' | DoneFrame['status'];
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly Call[];
  readonly components: readonly RenderComponentEvent[];
  readonly steps: readonly RouterUpdateEvent[];
  readonly warnings: readonly WarningFrame[];
  readonly error?: ErrorFrame;
  /** The stored message, once there is one. */
  readonly messageId?: string;
}

/** A turn of which nothing has come yet. */
export declare const emptyTurn: Turn;

/** The turn with one more part; text is cut back where the host says so (contract B4). */
export declare function addPart(turn: Turn, part: ReplyPart): Turn;
