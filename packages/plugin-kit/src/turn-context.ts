import type { AgAction, Attachment, BrowserTool, Message, UserPreferences } from '@sibyl/protocol';
import type { TurnUcan } from './turn-ucan.js';

/** Who the turn is for. */
export interface TurnUser {
  /** Proven by signature. */
  readonly did: string;
  /** IANA name. */
  readonly timezone: string;
  /** ISO 8601, when the turn started. */
  readonly currentTime: string;
  readonly matrix?: { readonly homeServer?: string; readonly accessToken?: string };
}

export interface TurnSession {
  readonly id: string;
  readonly requestId: string;
  readonly roomId: string;
  /** What brought the message: `api` unless a plugin says otherwise. */
  readonly client: string;
}

/** What the turn knows beyond the conversation. */
export interface TurnState {
  readonly userPreferences: UserPreferences;
  readonly editorRoomId?: string;
  readonly spaceId?: string;
  readonly currentEntityDid?: string;
  /** The message's `metadata`, as sent. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** What came with the message for plugins to use. */
export interface TurnRequestParts {
  readonly tools: readonly BrowserTool[];
  readonly agActions: readonly AgAction[];
  readonly attachments: readonly Attachment[];
  readonly mcpInvocations: Readonly<Record<string, string>>;
}

export interface TurnLogger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

/** What a plugin may see and do during one turn. */
export interface TurnContext {
  readonly user: TurnUser;
  readonly session: TurnSession;
  /** The messages before this one, oldest first. */
  readonly history: readonly Message[];
  readonly state: TurnState;
  readonly request: TurnRequestParts;
  readonly ucan: TurnUcan;
  readonly logger: TurnLogger;
  /** Fires when the turn is aborted or the call runs out of time. */
  readonly signal: AbortSignal;
  /** The call under way; empty outside of one. */
  readonly toolCallId: string;
}
