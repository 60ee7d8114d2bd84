import type {
  ActionCallEvent,
  AgAction,
  Attachment,
  BrowserTool,
  BrowserToolCallEvent,
  JsonObject,
  Message,
  MessageCacheInvalidationEvent,
  ReasoningEvent,
  RenderComponentEvent,
  RouterUpdateEvent,
  ToolCallEvent,
  UserPreferences,
} from '@sibyl/protocol';
import type { Logger } from './logger.js';
import type { Llms } from './plugin-context.js';
import type { TurnUcan } from './turn-ucan.js';

/** Who the turn is for. */
export interface TurnUser {
  /** Proven by signature, or vouched for by the plugin that brought the message. */
  readonly did: string;
  /** IANA name. */
  readonly timezone: string;
  /** ISO 8601, when the turn started. */
  readonly currentTime: string;
  /** The user's delegation to this oracle, if there is one; without `expiration` if it never expires. */
  readonly delegation?: { readonly cid: string; readonly expiration?: number };
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
  readonly tools?: readonly BrowserTool[];
  readonly agActions?: readonly AgAction[];
  readonly attachments: readonly Attachment[];
  readonly mcpInvocations: Readonly<Record<string, string>>;
}

type Payload<Event> = Omit<Event, 'sessionId' | 'requestId'>;

/** Tells the session's clients, in the order of the calls; never throws. */
export interface TurnEmit {
  toolCall(payload: Payload<ToolCallEvent>): void;
  actionCall(payload: Payload<ActionCallEvent>): void;
  renderComponent(payload: Payload<RenderComponentEvent>): void;
  reasoning(payload: Pick<ReasoningEvent, 'reasoning' | 'isComplete'>): void;
  browserToolCall(payload: Payload<BrowserToolCallEvent>): void;
  router(payload: Payload<RouterUpdateEvent>): void;
  messageCacheInvalidation(payload: Pick<MessageCacheInvalidationEvent, 'messageIds'>): void;
}

/** Asks the user's page to do something, and waits for its answer. */
export interface ClientCalls {
  /** Sends the call to the session's sockets; rejects on error, timeout, abort, or when no page is connected. */
  call(request: {
    readonly event: 'browser_tool_call' | 'action_call';
    readonly toolCallId: string;
    readonly toolName: string;
    readonly args: JsonObject;
    readonly signal: AbortSignal;
  }): Promise<unknown>;
}

/** What the plugin keeps for as long as the session lives. */
export interface SessionState {
  get(key: string): Promise<unknown>;
  /** `undefined` removes it. */
  set(key: string, value: unknown): Promise<void>;
}

/** The user's secrets with this plugin, encrypted at rest. */
export interface Secrets {
  get(name: string): Promise<string | undefined>;
  /** `undefined` removes it. */
  set(name: string, value: string | undefined): Promise<void>;
}

/** The user's files with this plugin. */
export interface Blobs {
  put(blob: { readonly mediaType: string; readonly data: Uint8Array }): Promise<string>;
  get(id: string): Promise<{ readonly mediaType: string; readonly data: Uint8Array } | undefined>;
  delete(id: string): Promise<void>;
}

/** What a plugin may see and do during one turn. */
export interface TurnContext<Config = Readonly<Record<string, unknown>>> {
  readonly user: TurnUser;
  readonly session: TurnSession;
  /** The messages before this one, oldest first; the newest of them where a conversation is very long. */
  readonly history: readonly Message[];
  readonly state: TurnState;
  readonly request: TurnRequestParts;
  /** The plugin's own variables. */
  readonly config: Config;
  readonly ucan: TurnUcan;
  readonly sessionState: SessionState;
  readonly secrets: Secrets;
  readonly blobs: Blobs;
  readonly llm: Llms;
  readonly emit: TurnEmit;
  readonly client: ClientCalls;
  /** What the plugins share, by key. */
  readonly shared: Readonly<Record<string, unknown>>;
  readonly logger: Logger;
  /** Tells the user that something was left out, while the turn goes on. */
  warn(code: string, message: string): void;
  /** Tells the agent what it cannot do in this turn, and why; before the first model call. */
  degrade(name: string, missing: string): void;
  /** Fires when the turn is over or aborted, or the call runs out of time. */
  readonly signal: AbortSignal;
  /** The call under way; empty outside of one. */
  readonly toolCallId: string;
}
