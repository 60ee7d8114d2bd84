import type { ReplyWarning, SendMessage } from '@sibyl/protocol';
import type { Caller } from '../auth/caller.js';

/** One message on its way to an answer, however it came in. */
export interface TurnRequest {
  readonly caller: Caller;
  readonly sessionId: string;
  readonly requestId: string;
  readonly message: Omit<SendMessage, 'stream' | 'returnAllMessages' | 'requestId'>;
  /** What the transport knows of the user, overruled by what the message says. */
  readonly user: {
    readonly timezone?: string | undefined;
    readonly matrixHomeServer?: string | undefined;
    readonly matrixAccessToken?: string | undefined;
  };
  /** What was left out of the request before the turn began. */
  readonly warnings?: readonly ReplyWarning[] | undefined;
  /** What brought the message, such as `api`. */
  readonly client: string;
  /** Makes a repeated request find the first one's run. */
  readonly idempotencyKey?: string | undefined;
}
