export { type ErrorCode, OracleError, type OracleErrorOptions } from '@sibyl/protocol';
export { LruMap, RateLimiter, textBytes } from '@sibyl/server-kit';
export type { Logger } from './logger.js';
export { PluginManifest, type PluginManifestInput, Visibility } from './manifest.js';
export type { GateRequest, MessageGate, TurnHold } from './message-gate.js';
export type {
  Middleware,
  ModelRequest,
  ModelRequestPatch,
  ModelResponse,
  ToolRequest,
} from './middleware.js';
export type {
  ModelMessage,
  ModelRole,
  ModelTool,
  ModelToolCall,
  ModelToolResult,
  ModelUsage,
  ModelUse,
  UserPart,
} from './model-call.js';
export {
  type AuthExcludedRoute,
  definePlugin,
  type Feature,
  type OraclePlugin,
  type PluginEnv,
  type SharedState,
} from './plugin.js';
export type {
  EarlyPluginContext,
  Llm,
  Llms,
  OracleFacts,
  OracleUcan,
  PluginContext,
  PluginTurn,
  PluginTurns,
} from './plugin-context.js';
export type {
  DatabaseEngine,
  PluginDatabase,
  PluginMigration,
  PluginMigrations,
  Unit,
} from './plugin-database.js';
export { repeat } from './repeat.js';
export type { RoomPlace, RoomState } from './room-state.js';
export { type Caller, CurrentCaller } from './routes/current-caller.js';
export { Describe, ROUTE_DESCRIPTION, type RouteDescription } from './routes/describe.js';
export { RawBody } from './routes/raw-body.js';
export { defineSubAgent, type SubAgent } from './sub-agent.js';
export { defineTool, type Tool } from './tool.js';
export type {
  Blobs,
  ClientCalls,
  Secrets,
  SessionState,
  TurnContext,
  TurnEmit,
  TurnRequestParts,
  TurnSession,
  TurnState,
  TurnUser,
} from './turn-context.js';
export type { JsonValue, MintRequest, TurnUcan, WantedCapability } from './turn-ucan.js';
