import type {
  Attachment,
  ErrorFrame,
  Message,
  RenderComponentEvent,
  WarningFrame,
} from '@sibyl/protocol';
import type { OracleClientError } from '../errors.js';
import type { ConnectionState } from '../events/session-events.js';
import type { MessageToSend } from '../oracle-client.js';
import type { Call } from '../turns/turn.js';

/** A message as a page shows it: stored, or still on its way. */
export interface ChatMessage {
  /** Stays the same while the chat is open, also when the message gets stored. */
  readonly id: string;
  readonly type: Message['type'];
  readonly content: string;
  readonly createdAt: string;
  readonly requestId: string;
  readonly reasoning: string;
  readonly calls: readonly Call[];
  readonly components: readonly RenderComponentEvent[];
  readonly attachments: readonly Attachment[];
  readonly warnings: readonly WarningFrame[];
  /** Why the turn failed. */
  readonly error?: ErrorFrame;
  /**
   * Of a question: `sending` until the host has it (`failed` if it never got it), `waiting` behind
   * another turn, `stored`. Of an answer: `running` while it grows, then `stored`, `incomplete` when
   * the turn was cut short, or `failed`.
   */
  readonly status: 'sending' | 'waiting' | 'running' | 'stored' | 'incomplete' | 'failed';
}

export interface ChatState {
  /** Oldest first: what is loaded of the history, then the turns at work and in the queue. */
  readonly messages: readonly ChatMessage[];
  readonly status: 'loading' | 'ready' | 'sending' | 'running' | 'rejoining' | 'failed';
  /** What went wrong last: a request, not a turn, which has its own. */
  readonly error?: OracleClientError;
  /** Messages that wait for the turn at work. */
  readonly waiting: number;
  readonly hasOlder: boolean;
  /** Of the session's socket. */
  readonly connection: ConnectionState;
}

/** A session as a conversation: history and live turns in one list. */
export interface Chat {
  readonly sessionId: string;
  getState(): ChatState;
  /** Calls back after every change; returns what ends it. */
  subscribe(listener: () => void): () => void;
  /** Settles when the turn has ended; what went wrong is in the state. */
  send(message: MessageToSend): Promise<void>;
  /** Ends the turn at work. */
  abort(): Promise<boolean>;
  loadOlder(): Promise<void>;
  /** Reads the history again and follows a turn that is at work. */
  refresh(): Promise<void>;
  close(): void;
}
