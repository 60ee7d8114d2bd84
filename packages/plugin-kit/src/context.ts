import type {
  ActionCallEvent,
  AgAction,
  Attachment,
  BrowserTool,
  BrowserToolCallEvent,
  Citation,
  JsonObject,
  Message,
  MessageCacheInvalidationEvent,
  ReasoningEvent,
  RenderComponentEvent,
  RouterUpdateEvent,
  ToolCallEvent,
  UserPreferences,
} from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import type { Holder } from '@sibyl/server-kit';
import type { Kysely } from 'kysely';
import type { ModelRole, ModelUse } from './model.js';
import type { Embeddings } from './search/embeddings.js';
import type { Surface } from './surface/surface.js';
import type { DelegatedTurns, PluginTurns } from './turns.js';

/** The oracle's identity. */
export interface OracleFacts {
  readonly did: string;
  readonly name: string;
  readonly entityDid?: string;
}

/** Signing with the oracle's own key. */
export interface OracleUcan {
  /** A base64 CAR for the service, signed by the oracle for itself. */
  mintInvocation(request: {
    readonly audience: string;
    readonly can: string;
    readonly with: string;
    readonly nb?: { readonly [caveat: string]: JsonValue };
    readonly ttlSeconds?: number;
  }): Promise<string>;
  /** The DID of the service at this configured address. */
  resolveServiceDid(serviceUrl: string): Promise<string>;
  /**
   * Signs a webhook delivery as Standard Webhooks describes for Ed25519 keys; returns the value of the header
   * `webhook-signature`. The id must begin with `msg_`.
   */
  signWebhook(delivery: {
    readonly id: string;
    /** Unix seconds. */
    readonly timestamp: number;
    readonly body: string;
  }): string;
  /**
   * Accepts an invocation once: from this issuer, for this oracle and exactly this capability. Throws `store_unavailable` if
   * that cannot be checked now; the invocation is not used then.
   */
  acceptOnce(
    token: string,
    wanted: WantedCapability & { readonly issuer: string },
  ): Promise<{ readonly ok: true } | { readonly error: string }>;
}

/** Calls a model outside of the conversation. */
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

/**
 * The other hosts of the database, and messages of a plugin to itself on them. Each may be lost: what must not be belongs in the
 * plugin's tables.
 */
export interface HostMessages {
  /** Identifies this host until its process ends. */
  readonly hostId: string;
  /** Sends JSON to the host with this id, or to all `others`. False if it is larger than a megabyte, and is not sent. */
  send(to: string, message: object): boolean;
  /** Calls the listener for each message of another host. */
  on(listener: (message: unknown) => void): void;
  /**
   * Those of these hosts that have ended or are disconnected, once other hosts have ended or continued their turns; none while this
   * host cannot know.
   */
  findDead(hostIds: readonly string[]): Promise<readonly string[]>;
}

/** The address for links to what a user decides: the chat page, if the host serves it. */
export const findPageUrl = ({
  publicUrl,
  availablePlugins,
}: Pick<SetupContext, 'publicUrl' | 'availablePlugins'>): string =>
  availablePlugins.has('chat-page') ? `${publicUrl}/app/` : publicUrl;

/** What `setup` receives, when the host starts. */
export interface SetupContext<Config = Readonly<Record<string, unknown>>> {
  /** The plugin's own environment variables, parsed by its `configSchema`. */
  readonly config: Config;
  readonly oracle: OracleFacts;
  /** The address of this host for links, without a slash at the end. */
  readonly publicUrl: string;
  /** Names of the plugins that are loaded. */
  readonly availablePlugins: ReadonlySet<string>;
  /** What the plugins it depends on share; values that are computed per turn are in `turn.shared` only. */
  readonly shared: Shared;
  readonly logger: Logger;
  readonly database: PluginDatabase;
  /** The secrets of a user with this plugin, outside of a turn. */
  readonly secrets: (owner: string) => Secrets;
  /** Usable once all plugins are set up: not in `setup` itself. */
  readonly rooms: RoomState;
  /** The state of rooms in the host's own store, for a plugin with `getRoomState` that copies it elsewhere. */
  readonly storedRooms: RoomState;
  /** `fetch` that refuses private addresses, follows few redirects and bounds time and size. */
  readonly fetch: SafeFetch;
  readonly ucan: OracleUcan;
  readonly turns: PluginTurns;
  readonly delegatedTurns: DelegatedTurns;
  readonly hosts: HostMessages;
  /** Where a user was last seen, and whether they are known: for `OwnerRounds`. */
  readonly findHolder: (owner: string) => Promise<Holder>;
  /** Turns of the callers of the plugin's own routes. */
  readonly surface: Surface;
  readonly llm: Llms;
  /** Undefined if the operator has not configured an embedding model. */
  readonly embeddings: Embeddings | undefined;
}

/** Names a value that one plugin shares with others, and its type. */
export interface SharedKey<T> {
  readonly name: string;
  /** For `getSharedState`: shares one value with every turn, and with the plugins that depend on this one. */
  share(value: T): SharedState;
  /** For `getSharedState`: computes the value once at the start of each turn. */
  sharePerTurn(compute: (turn: TurnContext) => T | Promise<T>): SharedState;
}

/** Creates a key: the plugin that shares the value and those that read it use the same name and type. */
export const sharedKey = <T>(name: string): SharedKey<T> => ({
  name,
  share: (value) => ({ [name]: value }),
  sharePerTurn: (compute) => ({ [name]: compute }),
});

/** Shared values by name; a function is called once at the start of each turn. */
export type SharedState = Readonly<Record<string, unknown>>;

/** What other plugins share. */
export interface Shared {
  /** Undefined if no loaded plugin shares it, or computing it failed in this turn. */
  get<T>(key: SharedKey<T>): T | undefined;
  /** Throws where `get` returns undefined. */
  require<T>(key: SharedKey<T>): T;
}

/** Writes to the operator's log. */
export interface Logger {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export type DatabaseEngine = 'sqlite' | 'postgres';

/**
 * Work in a transaction; it awaits only queries of the handle that it receives. It runs again if the database rolls it back
 * because of a deadlock, so it must change nothing else.
 */
// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
export type Unit<T, Tables = any> = (tables: Kysely<Tables>) => Promise<T>;

/** The plugin's own tables, in the host's store; their names start with the plugin's name, `-` replaced by `_`. */
// biome-ignore lint/suspicious/noExplicitAny: each plugin names its own tables.
export interface PluginDatabase<Tables = any> {
  readonly engine: DatabaseEngine;
  /**
   * The current time in milliseconds, by the clock of the database: all hosts that share it agree on it. Use it for what
   * other hosts compare, such as leases and expiry times.
   */
  readonly now: () => number;
  /** Single reads outside any transaction. */
  readonly tables: Kysely<Tables>;
  /** Runs a read-write transaction; resolves once it is on disk. */
  write<T>(unit: Unit<T, Tables>): Promise<T>;
  /**
   * As `write`, but units of one owner never run at the same time, on any host: rows that a unit has counted do not change
   * until it is committed. Use it for limits per user.
   */
  writeFor<T>(owner: string, unit: Unit<T, Tables>): Promise<T>;
  /** Runs several reads on one snapshot. */
  read<T>(unit: Unit<T, Tables>): Promise<T>;
}

/** Migrations by name, oldest first. Never change one that was released: add another. */
export type PluginMigrations = Readonly<Record<string, PluginMigration>>;

// biome-ignore lint/suspicious/noExplicitAny: a migration sees the tables of its time.
export type PluginMigration = (tables: Kysely<any>, engine: DatabaseEngine) => Promise<void>;

/** A user's room with this oracle. */
export interface RoomPlace {
  readonly owner: string;
  /** By default the user's own room with this oracle. */
  readonly roomId?: string;
}

/** Stores what belongs to a room rather than to a session, such as preferences. */
export interface RoomState {
  read(place: RoomPlace, key: string): Promise<JsonObject | undefined>;
  /** Replaces the value with what `change` returns; concurrent changes are all kept. */
  update(
    place: RoomPlace,
    key: string,
    change: (current: JsonObject | undefined) => JsonObject,
  ): Promise<JsonObject>;
}

/** The user whose message the turn answers. */
export interface TurnUser {
  /** Proven by a signature, or vouched for by the plugin that started the turn. */
  readonly did: string;
  /**
   * The person that the turn is for, if the user has given an access key to a program that others use too. What is stored belongs to
   * `did`, and is apart for each of them.
   */
  readonly subUser?: string;
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
  /** Where the message comes from: `api`, or what the plugin that started the turn states. */
  readonly client: string;
}

/** What is known beyond the conversation. */
export interface TurnState {
  readonly userPreferences: UserPreferences;
  readonly editorRoomId?: string;
  readonly spaceId?: string;
  readonly currentEntityDid?: string;
  /** The message's `metadata`, as sent. */
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** What the client sent with the message for plugins. */
export interface TurnRequestExtras {
  readonly tools?: readonly BrowserTool[];
  readonly agActions?: readonly AgAction[];
  readonly attachments: readonly Attachment[];
  readonly mcpInvocations: Readonly<Record<string, string>>;
}

type Payload<Event> = Omit<Event, 'sessionId' | 'requestId'>;

/** Sends events to the session's clients, in the order of the calls; never throws. */
export interface TurnEmit {
  toolCall(payload: Payload<ToolCallEvent>): void;
  actionCall(payload: Payload<ActionCallEvent>): void;
  renderComponent(payload: Payload<RenderComponentEvent>): void;
  reasoning(payload: Pick<ReasoningEvent, 'reasoning' | 'isComplete'>): void;
  browserToolCall(payload: Payload<BrowserToolCallEvent>): void;
  router(payload: Payload<RouterUpdateEvent>): void;
  messageCacheInvalidation(payload: Pick<MessageCacheInvalidationEvent, 'messageIds'>): void;
  /** Names a source of the answer, which becomes a part of the message. */
  citation(citation: Citation): void;
}

/** Calls functions of the user's page. */
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

/** The plugin's data about the session; deleted with it. */
export interface SessionState {
  get(key: string): Promise<unknown>;
  /** `undefined` removes it. */
  set(key: string, value: unknown): Promise<void>;
}

/** The user's secrets with this plugin, encrypted at rest. */
export interface Secrets {
  /** Throws the OracleError `key_changed` if it cannot be read, because the oracle's key has changed. */
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

/** How much of what is stored for a user is used: what belongs to the session, or to one person. */
export type Reach = 'session' | 'sub-user';

/** What a plugin can read and do during one turn. */
export interface TurnContext<Config = Readonly<Record<string, unknown>>, Services = unknown> {
  readonly user: TurnUser;
  readonly session: TurnSession;
  /** The messages before this one, oldest first; only the newest of a very long conversation. */
  readonly history: readonly Message[];
  readonly state: TurnState;
  readonly request: TurnRequestExtras;
  /** The plugin's own environment variables. */
  readonly config: Config;
  /** What the plugin's `setup` returned. */
  readonly services: Services;
  readonly ucan: TurnUcan;
  readonly sessionState: SessionState;
  readonly secrets: Secrets;
  readonly blobs: Blobs;
  readonly llm: Llms;
  readonly emit: TurnEmit;
  readonly client: ClientCalls;
  /** What the plugins share. */
  readonly shared: Shared;
  readonly logger: Logger;
  /** Sends the user a warning; the turn continues. */
  warn(code: string, message: string): void;
  /** Informs the agent about what is missing in this turn. Call it before the first model call. */
  degrade(name: string, missing: string): void;
  /** What the turn may use of what is stored for the user: anything, only what belongs to `user.subUser`, or nothing beyond the session. */
  readonly reach: 'user' | Reach;
  /** Whether the turn may use the plugin's tool with this name, so that what the plugin adds unasked follows its tools. */
  permits(tool: string): boolean;
  /** Aborts when the turn ends or is canceled, or the call times out. */
  readonly signal: AbortSignal;
  /** The current tool call; empty outside of one. */
  readonly toolCallId: string;
}

/** The turns that concern a plugin: those with any of this. */
export interface TurnCondition {
  /** They begin in one of these: `turn.session.client`. */
  readonly clients?: readonly string[];
  /** `turn.user` has one of these. */
  readonly user?: readonly ('subUser' | 'delegation' | 'matrix')[];
  /** `turn.request` has one of these, and it is not empty. */
  readonly request?: readonly Exclude<keyof TurnRequestExtras, 'attachments'>[];
  /** The message has attachments, or an earlier one of the conversation. */
  readonly attachments?: true;
  /** An earlier turn of the session has stored one of these keys: `turn.sessionState`. */
  readonly sessionState?: readonly string[];
  /** A plugin before this one shares one of these in the turn, and it is not empty. */
  readonly shared?: readonly SharedKey<unknown>[];
}

/** A value that JSON can represent. */
export type JsonValue =
  | string
  | number
  | boolean
  | null
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };

/** An ability on a resource. */
export interface WantedCapability {
  readonly can: string;
  readonly with: string;
}

/** An invocation to mint: the capability, its audience and its caveats. */
export interface MintRequest extends WantedCapability {
  /** DID of the service that will receive the invocation. */
  readonly audience: string;
  readonly nb?: { readonly [caveat: string]: JsonValue };
  readonly ttlSeconds?: number;
}

/** What the user's delegation permits the oracle to do at other services, during one turn. */
export interface TurnUcan {
  /** Whether this oracle has a key to sign with under its DID. */
  hasSigningKey(): boolean;
  hasCapability(wanted: WantedCapability): Promise<boolean>;
  /** Throws an error that names what the user has to delegate. */
  requireCapability(wanted: WantedCapability): Promise<void>;
  /** A base64 CAR for the service, with the user's delegation as its proof. */
  mintInvocation(request: MintRequest): Promise<string>;
  /** The DID that the service at this configured address answers for. */
  resolveServiceDid(serviceUrl: string): Promise<string>;
}
