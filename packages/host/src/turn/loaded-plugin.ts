import type {
  MessageGate,
  Middleware,
  OraclePlugin,
  PluginManifest,
  SharedState,
  SubAgent,
  Tool,
} from '@sibyl/plugin-kit';

/** A plugin that is set up: what it brings to every turn. */
export interface LoadedPlugin {
  readonly name: string;
  /** With the operator's overrides and the defaults filled in. */
  readonly manifest: PluginManifest;
  /** Its own variables. */
  readonly config: Readonly<Record<string, unknown>>;
  readonly tools: readonly Tool[];
  readonly subAgents: readonly SubAgent[];
  readonly middlewares: readonly Middleware[];
  readonly gate: MessageGate | undefined;
  readonly shared: SharedState;
  /** For the hooks of each turn: getRequestTools, getRequestSubAgents. */
  readonly plugin: OraclePlugin;
}
