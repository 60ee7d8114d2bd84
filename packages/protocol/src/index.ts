export {
  DelegationInfo,
  DelegationList,
  DelegationRevoked,
  DelegationStatus,
  DelegationStored,
  DelegationsRevoked,
  INVITATION_MAX_DAYS,
  InvitationRedeemed,
  RedeemInvitation,
  StoreDelegation,
} from './delegations.js';
export {
  DidDocument,
  Health,
  Landing,
  ModelInfo,
  ModelList,
  OracleCard,
  PluginInfo,
  PluginList,
  Readiness,
  type ReadinessCheck,
} from './discovery.js';
export type { Result } from './errors.js';
export {
  ErrorBody,
  type ErrorCode,
  errorCatalog,
  OracleError,
  type OracleErrorOptions,
} from './errors.js';
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
export { type JsonLimits, JsonObject, type JsonSize, measureJson } from './json.js';
export {
  AbortTurn,
  AgAction,
  Attachment,
  BrowserTool,
  Citation,
  Message,
  MessageComponent,
  MessageList,
  MessagePage,
  MessagePart,
  Multitask,
  PageMessages,
  ReasoningEffort,
  Reply,
  ReplyWarning,
  SendMessage,
  ToolCall,
  TurnAborted,
} from './messages.js';
export { PreferencesPatch, UserPreferences } from './preferences.js';
export {
  CurrentRun,
  DoneFrame,
  ErrorFrame,
  ErrorKind,
  JoinRun,
  PendingAnswer,
  type ReplyPart,
  Run,
  RunFrame,
  type RunFrameName,
  RunStatus,
  runFrames,
  TextFrame,
  TurnUsage,
  WarningFrame,
} from './run-frames.js';
export { describeIssues, type SchemaIssue } from './schema-issues.js';
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
