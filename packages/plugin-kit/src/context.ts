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
  ReplyPart,
  RouterUpdateEvent,
  ToolCallEvent,
  UserPreferences,
} from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import type { Kysely } from 'kysely';
import type { ModelRole, ModelUse } from './model.js';

/** Who the oracle is. */
export interface OracleFacts {
  readonly did: string;
  readonly name: string;
  readonly entityDid?: string;
}

/** What the oracle may do with its own key. */
export interface OracleUcan {
  /** A base64 CAR for the service, signed by the oracle for itself. */
  mintInvocation(request: {
    readonly audience: string;
    readonly can: string;
    readonly with: string;
    readonly nb?: { readonly [caveat: string]: JsonValue };
    readonly ttlSeconds?: number;
  }): Promise<string>;
  /** The DID that the service at this configured address answers for. */
  resolveServiceDid(serviceUrl: string): Promise<string>;
  /** Accepts an invocation once: of this caller, for this oracle, for exactly this capability. */
  acceptOnce(
    token: string,
    wanted: WantedCapability & { readonly issuer: string },
  ): Promise<{ readonly ok: true } | { readonly fault: string }>;
}

/** A message that a plugin brings from elsewhere. */
export interface PluginTurn {
  /** Of the user where the plugin knows them from; the owner becomes `did:<plugin>:<user>`. */
  readonly user: string;
  readonly sessionId: string;
  readonly message: string;
  /** What brought the message, for the turn's context. */
  readonly client: string;
  readonly timezone?: string;
  /** Makes a repeated delivery find the first one's turn. */
  readonly idempotencyKey?: string;
}

/** Lets a plugin bring messages of users it has authenticated itself. */
export interface PluginTurns {
  openSession(user: string): Promise<{ readonly sessionId: string }>;
  /** Resolves once the message is stored; the answer is then there to read, to its `done`. */
  start(turn: PluginTurn): Promise<AsyncIterable<ReplyPart>>;
  abort(turn: Pick<PluginTurn, 'user' | 'sessionId'>): Promise<boolean>;
}

/** Asks a model outside of the conversation. */
export interface Llm {
  generate(request: {
    readonly system?: string;
    readonly prompt: string;
    readonly signal?: AbortSignal;
  }): Promise<{ readonly text: string; readonly use: ModelUse }>;
}

export interface Llms {
  get(role: ModelRole): Llm;
}

/** What a plugin gets once, when the host starts. */
export interface PluginContext<Config = Readonly<Record<string, unknown>>> {
  /** The plugin's own variables, as its `configSchema` made them. */
  readonly config: Config;
  readonly oracle: OracleFacts;
  /** Names of the plugins that are loaded. */
  readonly availablePlugins: ReadonlySet<string>;
  /** What the plugins it depends on share. */
  readonly shared: Readonly<Record<string, unknown>>;
  readonly logger: Logger;
  readonly database: PluginDatabase;
  readonly rooms: RoomState;
  /** `fetch` that refuses private addresses, follows few redirects and bounds time and size. */
  readonly fetch: SafeFetch;
  readonly ucan: OracleUcan;
  readonly turns: PluginTurns;
  readonly llm: Llms;
  /** Called when the host closes, before the store does; what was given last is called first. */
  onClose(task: () => void | Promise<void>): void;
}

/** What a plugin has before it is known who keeps the rooms and what others share. */
export type EarlyPluginContext<Config = Readonly<Record<string, unknown>>> = Omit<
  PluginContext<Config>,
  'rooms' | 'shared'
>;

/** Where a plugin writes to the operator. */
export interface Logger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export type DatabaseEngine = 'sqlite' | 'postgres';

/** Work on a plugin's tables; it awaits queries of the handle it is given and nothing else. */
// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
export type Unit<T, Tables = any> = (tables: Kysely<Tables>) => Promise<T>;

/** The plugin's own tables, in the host's store; their names start with the plugin's, `-` written `_`. */
// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
export interface PluginDatabase<Tables = any> {
  readonly engine: DatabaseEngine;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Tables>;
  /** Runs a unit whole or not at all, and settles only once the outcome is on disk. */
  write<T>(unit: Unit<T, Tables>): Promise<T>;
  /** Runs several reads that all see the same moment. */
  read<T>(unit: Unit<T, Tables>): Promise<T>;
}

/** Steps of the plugin's schema by name, oldest first. Steps are only ever added. */
export type PluginMigrations = Readonly<Record<string, PluginMigration>>;

// biome-ignore lint/suspicious/noExplicitAny: a step sees the tables of its own time.
export type PluginMigration = (tables: Kysely<any>, engine: DatabaseEngine) => Promise<void>;

/** A user's room with this oracle. */
export interface RoomPlace {
  readonly owner: string;
  /** The user's own room with this oracle unless told. */
  readonly roomId?: string;
}

/** Keeps what belongs to a room rather than to a session, such as preferences. */
export interface RoomState {
  read(place: RoomPlace, key: string): Promise<JsonObject | undefined>;
  /** Replaces what is there by what `change` makes of it; two changes never lose one another. */
  update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject>;
}

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

/** What caveats may hold. */
export type JsonValue =
  | string
  | number
  | boolean
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };

/** Something a caller may do: an ability at a resource. */
export interface WantedCapability {
  readonly can: string;
  readonly with: string;
}

/** What to mint: the capability, the service it is for, and how it may be narrowed. */
export interface MintRequest extends WantedCapability {
  /** DID of the service that will receive the invocation. */
  readonly audience: string;
  readonly nb?: { readonly [caveat: string]: JsonValue };
  readonly ttlSeconds?: number;
}

/** What the user's delegation lets the oracle do elsewhere, during one turn. */
export interface TurnUcan {
  /** Whether this oracle has a key to sign with under its DID. */
  hasSigningKey(): boolean;
  hasCapability(wanted: WantedCapability): Promise<boolean>;
  /** Throws, saying what the user would have to delegate. */
  requireCapability(wanted: WantedCapability): Promise<void>;
  /** A base64 CAR for the service, with the user's delegation as its proof. */
  mintInvocation(request: MintRequest): Promise<string>;
  /** The DID that the service at this configured address answers for. */
  resolveServiceDid(serviceUrl: string): Promise<string>;
}

/** Where in a conversation a turn is. */
interface TurnPlace {
  readonly sessionId: string;
  readonly requestId: string;
}

/** The `emit` of a turn's context: each method says one kind of frame, with the turn's place in it. */
export function turnEmit(
  { sessionId, requestId }: TurnPlace,
  emit: (part: ReplyPart) => void,
): TurnEmit {
  const place = { sessionId, requestId };
  const timestamp = () => new Date().toISOString();
  return {
    toolCall: (data) => emit({ event: 'tool_call', data: { ...data, ...place } }),
    actionCall: (data) => emit({ event: 'action_call', data: { ...data, ...place } }),
    renderComponent: (data) => emit({ event: 'render_component', data: { ...data, ...place } }),
    reasoning: (data) =>
      emit({ event: 'reasoning', data: { ...data, ...place, timestamp: timestamp() } }),
    browserToolCall: (data) => emit({ event: 'browser_tool_call', data: { ...data, ...place } }),
    router: (data) => emit({ event: 'router_update', data: { ...data, ...place } }),
    messageCacheInvalidation: (data) =>
      emit({ event: 'message_cache_invalidation', data: { ...data, ...place, status: 'done' } }),
  };
}
