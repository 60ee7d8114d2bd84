export { type ErrorCode, OracleError, type OracleErrorOptions } from '@sibyl/protocol';
export { LruMap, RateLimiter, textBytes } from '@sibyl/server-kit';
export type {
  Blobs,
  ClientCalls,
  DatabaseEngine,
  EarlyPluginContext,
  JsonValue,
  Llm,
  Llms,
  Logger,
  MintRequest,
  OracleFacts,
  OracleUcan,
  PluginContext,
  PluginDatabase,
  PluginMigration,
  PluginMigrations,
  PluginTurn,
  PluginTurns,
  RoomPlace,
  RoomState,
  Secrets,
  SessionState,
  TurnContext,
  TurnEmit,
  TurnRequestParts,
  TurnSession,
  TurnState,
  TurnUcan,
  TurnUser,
  Unit,
  WantedCapability,
} from './context.js';
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
} from './model.js';
export {
  type AuthExcludedRoute,
  definePlugin,
  type Feature,
  type OraclePlugin,
  type PluginEnv,
  type SharedState,
} from './plugin.js';
export { repeat } from './repeat.js';
export {
  type Caller,
  CurrentCaller,
  Describe,
  RawBody,
  ROUTE_DESCRIPTION,
  type RouteDescription,
} from './routes.js';
export { defineSubAgent, defineTool, type SubAgent, type Tool } from './tool.js';
