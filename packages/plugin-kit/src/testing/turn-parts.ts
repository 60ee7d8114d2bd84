import type { AgAction, Attachment, BrowserTool, Message, UserPreferences } from '@sibyl/protocol';
import type { TurnUser } from '../turn-context.js';

/** What is told of a turn; the rest is made up. */
export interface TurnParts {
  /** The user's DID. */
  readonly user?: string;
  readonly sessionId?: string;
  readonly roomId?: string;
  readonly client?: string;
  readonly timezone?: string;
  readonly matrix?: NonNullable<TurnUser['matrix']>;
  readonly history?: readonly Message[];
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly preferences?: UserPreferences;
  readonly tools?: readonly BrowserTool[];
  readonly agActions?: readonly AgAction[];
  readonly attachments?: readonly Attachment[];
  readonly mcpInvocations?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}
