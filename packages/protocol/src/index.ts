export {
  DelegationInfo,
  DelegationList,
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  DelegationsRevoked,
  StoreDelegation,
} from './delegation.js';
export { describeIssues, type SchemaIssue } from './describe-issues.js';
export { DidDocument, OracleCard } from './discovery.js';
export { ErrorBody } from './error-body.js';
export { type ErrorCode, errorCatalog, OracleError, type OracleErrorOptions } from './errors.js';
export {
  ActionCallEvent,
  BrowserToolCallEvent,
  MessageCacheInvalidationEvent,
  ReasoningEvent,
  RenderComponentEvent,
  RouterUpdateEvent,
  ToolCallEvent,
} from './events.js';
export { corsExposedHeaders, corsMethods, corsRequestHeaders, requestHeaders } from './headers.js';
export { Health, Landing, Readiness, type ReadinessCheck } from './health.js';
export {
  Did,
  Id,
  IdempotencyKey,
  LastEventId,
  RequestId,
  Timestamp,
  TimeZone,
  TimezoneName,
  UcanToken,
  wholeNumber,
} from './identifiers.js';
export { InvitationRedeemed, RedeemInvitation } from './invitations.js';
export { type JsonLimits, JsonObject, type JsonSize, measureJson } from './json.js';
export {
  Message,
  MessageList,
  MessagePage,
  PageMessages,
  Reply,
  ReplyWarning,
  ToolCall,
} from './messages.js';
export { ModelInfo, ModelList } from './models.js';
export { PluginInfo, PluginList } from './plugins.js';
export { PreferencesPatch, UserPreferences } from './preferences.js';
export type { Result } from './result.js';
export {
  CurrentRun,
  DoneFrame,
  ErrorFrame,
  FaultKind,
  JoinRun,
  type ReplyPart,
  Run,
  RunFrame,
  type RunFrameName,
  RunStatus,
  runFrames,
  TextFrame,
  WarningFrame,
} from './run-frames.js';
export {
  AbortTurn,
  AgAction,
  Attachment,
  BrowserTool,
  Multitask,
  SendMessage,
  TurnAborted,
} from './send-message.js';
export {
  CreateSession,
  ListSessions,
  RenameSession,
  Session,
  SessionDeleted,
  SessionPage,
} from './sessions.js';
export {
  ActionCallResult,
  type ClientEventName,
  ClosingReason,
  clientEvents,
  Handshake,
  type ServerEventName,
  serverEvents,
  ToolResult,
} from './socket-events.js';
export { type SseEvent, SseParser, type SseParserOptions } from './sse-parser.js';
