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

/** A message as a page shows it, stored or in progress. */
export interface ChatMessage {
  /** Stays the same while the chat is open, even after the message is stored. */
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
   * Of a question: `sending`, `failed` if the server never received it, `waiting` while queued, or
   * `stored`. Of an answer: `running`, `stored`, `incomplete` if the turn was interrupted, or `failed`.
   */
  readonly status: 'sending' | 'waiting' | 'running' | 'stored' | 'incomplete' | 'failed';
}

export interface ChatState {
  /** Oldest first: the loaded history, then active and queued turns. */
  readonly messages: readonly ChatMessage[];
  readonly status: 'loading' | 'ready' | 'sending' | 'running' | 'rejoining' | 'failed';
  /** The error of the last request. A failed turn has its error in its message. */
  readonly error?: OracleClientError;
  /** The number of queued messages. */
  readonly waiting: number;
  readonly hasOlder: boolean;
  /** The state of the session's socket. */
  readonly connection: ConnectionState;
}

/** A session as one list of history and live turns. */
export interface Chat {
  readonly sessionId: string;
  getState(): ChatState;
  /** Calls the listener after every change; returns a function that removes it. */
  subscribe(listener: () => void): () => void;
  /** Resolves when the turn has ended; errors are in the state. */
  send(message: MessageToSend): Promise<void>;
  /** Cancels the active turn; returns whether there was one. */
  abort(): Promise<boolean>;
  loadOlder(): Promise<void>;
  /** Reads the history again and follows the active turn. */
  refresh(): Promise<void>;
  close(): void;
}
