export {
  type ErrorCode,
  HttpUrl,
  hasShortHost,
  JsonTextLimit,
  OracleError,
  type OracleErrorOptions,
  RUN_ABILITY,
} from '@sibyl/protocol';
export { createSafeFetch, type SafeFetch, SafeFetchError } from '@sibyl/safe-fetch';
export {
  abortable,
  ByteBudget,
  type Holder,
  LruMap,
  RateLimiter,
  settlesWithin,
  TimeoutError,
  textBytes,
  withTimeout,
} from '@sibyl/server-kit';
export type {
  Blobs,
  ClientCalls,
  DatabaseEngine,
  FileReadOptions,
  FileSource,
  HostMessages,
  JsonValue,
  Llm,
  Llms,
  Logger,
  MintRequest,
  OracleFacts,
  OracleUcan,
  PluginDatabase,
  PluginMigration,
  PluginMigrations,
  Reach,
  RoomPlace,
  RoomState,
  Secrets,
  SessionState,
  SetupContext,
  Shared,
  SharedKey,
  SharedState,
  TurnContext,
  TurnEmit,
  TurnRequestExtras,
  TurnSession,
  TurnState,
  TurnUcan,
  TurnUser,
  Unit,
  WantedCapability,
} from './context.js';
export { FILE_SOURCES, findPageUrl, sharedKey } from './context.js';
export {
  Inbox,
  type InboxRow,
  type MessageIdentity,
  type PausedTurn,
  type Waiting,
} from './inbox.js';
export { InboxWorker } from './inbox-worker.js';
export { PluginManifest, type PluginManifestInput, Visibility } from './manifest.js';
export type { Middleware, ModelRequest, ModelResponse, ToolCall } from './middleware.js';
export type {
  MediaPart,
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
  compareVectors,
  type Embeddings,
  mergeRankings,
  toVector,
  type Vector,
} from './model.js';
export { OwnerRounds, type OwnersPage } from './owner-rounds.js';
export type {
  ExportedFile,
  GateRequest,
  ImportedCounts,
  ImportedRows,
  MessageGate,
  PluginContext,
  TurnHold,
} from './plugin.js';
export {
  type AuthExcludedRoute,
  type Diagnosis,
  type DiagnosisContext,
  definePlugin,
  type Feature,
  type JobSummary,
  type OraclePlugin,
  type PluginEnv,
} from './plugin.js';
export { type Repetition, repeat } from './repeat.js';
export {
  postWebhook,
  RESULT_CHATS,
  ResultAddresses,
  type ResultChat,
  type WebhookDelivery,
} from './result-addresses.js';
export {
  ACCESS_KEY_ROUTE,
  type Caller,
  CurrentCaller,
  Describe,
  defineRoute,
  NeedsOwnKey,
  ORIGIN_CHECKED_ROUTE,
  OWN_KEY_ROUTE,
  RawBody,
  ROUTE_DESCRIPTION,
  ROUTE_ERROR_FORMAT,
  type Route,
  type RouteDescription,
  type RouteError,
  RouteReply,
  type RouteRequest,
} from './routes.js';
export type { ToolInput, ToolSchema } from './schema.js';
export {
  isUnspaced,
  MAX_INDEXED_TEXT,
  readQueryTerms,
  readTerms,
  type Term,
} from './search-terms.js';
export type {
  CallerAccess,
  CallerSessionPage,
  CallerSessions,
  CallerTurnPage,
  CallerTurns,
  ClientMessage,
  ClientTool,
  ClientToolCall,
  EarlierMessage,
  NumberedPart,
  Surface,
  SurfaceFile,
  SurfacePlugin,
  SurfaceRun,
  SurfaceTurn,
  ThreadTurn,
  ToolChoice,
} from './surface.js';
export { findClientToolCall } from './surface.js';
export {
  type ApprovedDelegation,
  defineSubAgent,
  defineTool,
  type InterruptRequest,
  type MediaResult,
  mediaResult,
  type SubAgent,
  type Tool,
  type ToolAnswer,
  type ToolContext,
  type ToolDelegation,
  type ToolProgress,
  type ToolResult,
} from './tool.js';
export type {
  Continuation,
  DelegatedTurn,
  DelegatedTurns,
  EndedQuestion,
  PendingQuestion,
  PluginTurn,
  PluginTurns,
  RunDelegation,
  RunPermission,
  RunReference,
  TurnOutcome,
} from './turns.js';
