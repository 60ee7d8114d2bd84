import type { ReplyPart } from '@sibyl/protocol';
import type { SafeFetch } from '@sibyl/safe-fetch';
import type { Logger } from './logger.js';
import type { ModelRole, ModelUse } from './model-call.js';
import type { PluginDatabase } from './plugin-database.js';
import type { RoomState } from './room-state.js';
import type { JsonValue, WantedCapability } from './turn-ucan.js';

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
