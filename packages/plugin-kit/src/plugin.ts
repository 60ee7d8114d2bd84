import type { DynamicModule, RequestMethod, Type } from '@nestjs/common';
import type { z } from 'zod';
import type {
  PluginMigrations,
  RoomState,
  SetupContext,
  SharedState,
  TurnCondition,
  TurnContext,
} from './context.js';
import type { PluginManifestInput } from './manifest.js';
import type { Middleware } from './middleware.js';
import type { ModelUse } from './model.js';
import type { PluginRoute, Route } from './routes.js';
import type { AnyTable } from './tables/index.js';
import type { Definitions, SubAgent, Tool } from './tool.js';

/** A route open to callers without a UCAN: a path, or a path and its method. */
export type AuthExcludedRoute = string | { readonly path: string; readonly method?: RequestMethod };

/** The environment variables that the plugin's `configSchema` names, unparsed. */
export type PluginEnv = Readonly<Record<string, string | undefined>>;

/** Whether a plugin loads: always, never, or when `autoDetect` finds what it needs. */
export type Feature = boolean | 'auto';

type Awaitable<T> = T | Promise<T>;

/** What `diagnose` receives. The plugin is not set up. */
export interface DiagnosisContext<Config = Readonly<Record<string, unknown>>>
  extends Pick<SetupContext<Config>, 'config' | 'fetch' | 'logger'> {}

/** The state of a service that a plugin depends on. */
export interface Diagnosis {
  /** The service, such as `Slack`. */
  readonly name: string;
  readonly ok: boolean;
  /** What was found. */
  readonly text: string;
  /** What to do about a failure. */
  readonly remedy?: string;
}

/** One kind of background work of a plugin, of all users together. */
export interface JobSummary {
  /** Such as `Schedules`. */
  readonly name: string;
  readonly waiting: number;
  readonly running: number;
  readonly failed: number;
  /** When the next one is due. */
  readonly nextAt?: Date | undefined;
}

/** What the hooks receive that are called when the host starts. */
export interface PluginContext<Config = Readonly<Record<string, unknown>>, Services = unknown>
  extends SetupContext<Config>,
    Definitions<Config, Services> {
  /** What `setup` returned. */
  readonly services: Services;
  readonly route: PluginRoute<{ readonly config: Config; readonly services: Services }>;
}

/** What the hooks receive that are called in each turn. */
export type RequestContext<Config, Services> = TurnContext<Config, Services> &
  Definitions<Config, Services>;

// biome-ignore lint/suspicious/noExplicitAny: tools of any schema.
type Tools<Services> = readonly Tool<any, any, NoInfer<Services>>[];

/** Declared as a method, so that its parameter is checked like those of the other hooks. */
type RoutesHook<Config, Services> = {
  routes(context: PluginContext<Config, Services>): Awaitable<readonly Route[]>;
}['routes'];

/** Declared as a method, like `RoutesHook`. */
type WhenHook<Config, Services> = {
  when(context: PluginContext<Config, Services>): TurnCondition | undefined;
}['when'];

/**
 * A unit of the host that can be switched off. Hooks are called as methods, so a class works too.
 * In a literal, write `setup` before the other hooks: TypeScript infers their `services` from it.
 */
// biome-ignore lint/suspicious/noExplicitAny: without arguments it is any plugin.
export interface OraclePlugin<ConfigSchema extends z.ZodObject = z.ZodObject, Services = any> {
  /** Lower case, digits and `-`. */
  readonly name: string;
  readonly version: string;
  readonly manifest: PluginManifestInput;
  /** Plugins that must be loaded. */
  readonly dependsOn?: readonly string[];
  /** Plugins that are set up first if they are loaded. */
  readonly softDependsOn?: readonly string[];
  /** Its environment variables; all errors in the environment are reported together. */
  readonly configSchema?: ConfigSchema;
  /** Whether the environment has what it needs; called only while its feature is `auto`, the default. */
  autoDetect?(env: PluginEnv): boolean;
  /** What the operator has to set so that it loads. */
  readonly autoDetectHint?: string;
  /** Its tables, parents before those that refer to them. */
  readonly tables?: readonly AnyTable[];
  /** What changed in them since its first version; a new database has the tables of this version at once. */
  readonly migrations?: PluginMigrations;

  /** Summarizes its background work, for the page of operators. */
  getJobs?(services: Services): Awaitable<readonly JobSummary[]>;

  /** Checks the services it depends on, for `sibyl doctor`. */
  diagnose?(context: DiagnosisContext<z.output<ConfigSchema>>): Awaitable<readonly Diagnosis[]>;

  /** Called once, before all other hooks; they receive what it returns as `services`. */
  setup?(context: SetupContext<z.output<ConfigSchema>>): Awaitable<Services>;
  /** Called when the host closes, before the store does; plugins set up last close first. */
  close?(services: Services): Awaitable<void>;
  /** HTTP routes, or a function that returns them. */
  readonly routes?: readonly Route[] | RoutesHook<z.output<ConfigSchema>, Services>;

  /**
   * The turns that concern it, or a function that returns that; undefined means all. In others, its hooks of turns are not called:
   * `getRequestTools`, `getRequestSubAgents`, what it shares per turn, and its middlewares. Its tools, routes and gate stay.
   */
  readonly when?: TurnCondition | WhenHook<z.output<ConfigSchema>, Services>;
  /** Tools for every turn. */
  getTools?(context: PluginContext<z.output<ConfigSchema>, Services>): Awaitable<Tools<Services>>;
  /** Tools for this turn only. */
  getRequestTools?(
    turn: RequestContext<z.output<ConfigSchema>, Services>,
  ): Awaitable<Tools<Services>>;
  getSubAgents?(
    context: PluginContext<z.output<ConfigSchema>, Services>,
  ): Awaitable<readonly SubAgent<NoInfer<Services>>[]>;
  getRequestSubAgents?(
    turn: RequestContext<z.output<ConfigSchema>, Services>,
  ): Awaitable<readonly SubAgent<NoInfer<Services>>[]>;
  getMiddlewares?(
    context: PluginContext<z.output<ConfigSchema>, Services>,
  ): Awaitable<readonly Middleware<z.output<ConfigSchema>, NoInfer<Services>>[]>;
  /** Values for other plugins; each key belongs to one plugin. */
  getSharedState?(context: PluginContext<z.output<ConfigSchema>, Services>): Awaitable<SharedState>;
  /** Nest modules, for routes that need more than `routes` offers. */
  getNestModules?(
    context: PluginContext<z.output<ConfigSchema>, Services>,
  ): Awaitable<readonly (Type | DynamicModule)[]>;
  /** Routes of its Nest modules that need no UCAN. */
  getAuthExcludedRoutes?(): readonly AuthExcludedRoute[];
  getMessageGate?(context: PluginContext<z.output<ConfigSchema>, Services>): Awaitable<MessageGate>;
  /** Stores room state outside of the host's store; at most one plugin does. */
  getRoomState?(
    context: PluginContext<z.output<ConfigSchema>, Services>,
  ): Awaitable<RoomState | undefined>;

  /** The tables whose rows `importRows` accepts. */
  readonly importedTables?: readonly string[];
  /**
   * Stores rows of its tables from the export of a user, who may have changed them; returns how many are new, and how
   * many are invalid or exceed a limit. Rows that exist stay as they are.
   */
  importRows?(request: ImportedRows, services: Services): Awaitable<number | ImportedCounts>;
  /** What it stores about a user outside of the database. Rows of its tables are exported without it. */
  exportUser?(owner: string, services: Services): AsyncIterable<ExportedFile>;
  /** Deletes what it stores about a user outside of the database; if it fails, the user can try again. */
  eraseUser?(owner: string, services: Services): Awaitable<void>;
}

/** What became of imported rows; the others exist already. */
export interface ImportedCounts {
  readonly stored: number;
  readonly refused: number;
}

/** Rows of an export, as `GET /me/export` writes them. */
export interface ImportedRows {
  /** The caller's DID. */
  readonly owner: string;
  readonly table: string;
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

/** A file of an export. */
export interface ExportedFile {
  /** Its path in the folder of the plugin. */
  readonly path: string;
  readonly data: AsyncIterable<Uint8Array> | Iterable<Uint8Array>;
}

/** Types a plugin: its hooks know its configuration and its services. */
export const definePlugin = <ConfigSchema extends z.ZodObject, Services = undefined>(
  plugin: OraclePlugin<ConfigSchema, Services>,
): OraclePlugin<ConfigSchema, Services> => plugin;

/** A message that is about to start a turn. */
export interface GateRequest {
  /** The caller's DID. */
  readonly owner: string;
  readonly sessionId: string;
  readonly requestId: string;
  /** The model that will answer, as `/models` lists it. */
  readonly model: string;
  /** Characters of the message, for an estimate. */
  readonly length: number;
}

/** What a gate holds for a turn that it admitted. */
export interface TurnHold {
  /**
   * Called before each model call, also of sub-agents and titles, with the usage of the turn.
   * Throws an OracleError to end the turn. Any other error ends it too, as `gate_unavailable`.
   */
  check?(used: readonly ModelUse[]): void | Promise<void>;
  /**
   * Called once everything that belongs to the turn has ended. A call that fails or hangs is repeated,
   * so settling the same turn twice must change nothing.
   */
  settle(used: readonly ModelUse[]): Promise<void>;
}

/** May refuse a turn before it starts; one that hangs, fails or returns an invalid value refuses it as `gate_unavailable`. */
export interface MessageGate {
  /** Throws an OracleError to refuse: the caller receives it, and nothing is stored. */
  admit(request: GateRequest): Promise<TurnHold | undefined>;
}
