export { OracleError } from '@sibyl/protocol';
export { createSafeFetch, type SafeFetch, SafeFetchError } from '@sibyl/safe-fetch';
export {
  abortable,
  ByteBudget,
  ChangeSignal,
  LruMap,
  RateLimiter,
  TimeoutError,
  textBytes,
  withTimeout,
} from '@sibyl/server-kit';
export {
  type DatabaseEngine,
  findPageUrl,
  type HostMessages,
  type Llms,
  type Logger,
  type OracleFacts,
  type OracleUcan,
  type PluginDatabase,
  type PluginMigrations,
  type RoomPlace,
  type RoomState,
  type Secrets,
  type SetupContext,
  type SharedKey,
  type SharedState,
  sharedKey,
  type TurnContext,
  type TurnUser,
} from './context.js';
export type { PluginManifestInput } from './manifest.js';
export type { Middleware, ModelRequest, ModelResponse, ToolCall } from './middleware.js';
export type { ModelMessage, ModelUse, UserPart } from './model.js';
export {
  type Diagnosis,
  type DiagnosisContext,
  definePlugin,
  type GateRequest,
  type ImportedCounts,
  type JobSummary,
  type MessageGate,
  type OraclePlugin,
  type PluginContext,
  type TurnHold,
} from './plugin.js';
export { type Repetition, repeat } from './repeat.js';
export {
  type Caller,
  CurrentCaller,
  Describe,
  defineRoute,
  NeedsOwnKey,
  RawBody,
  type Route,
  StartsWork,
} from './routes.js';
export type { Embeddings } from './search/embeddings.js';
export {
  type ApprovedDelegation,
  defineSubAgent,
  defineTool,
  type InterruptRequest,
  type MediaResult,
  mediaResult,
  type SubAgent,
  type Tool,
  type ToolContext,
  type ToolDelegation,
} from './tool.js';
export type { DelegatedTurns, RunDelegation, RunPermission, TurnOutcome } from './turns.js';
