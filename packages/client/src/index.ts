export type {
  AccessKeyCaveats,
  AccessKeyInfo,
  ActivityEntry,
  ActivityPage,
  Approval,
  ApprovalDecided,
  ApprovalRequestEvent,
  Attachment,
  AuditLog,
  Citation,
  DelegationInfo,
  DelegationStatus,
  DelegationStored,
  DoneFrame,
  Erased,
  ErrorCode,
  ErrorFrame,
  Fact,
  FactPage,
  FailedCheck,
  Feedback,
  FileInfo,
  FilePage,
  HostReport,
  ImportJob,
  JsonObject,
  MatrixLink,
  Message,
  MessagePage,
  ModelInfo,
  ModelList,
  OperatorAction,
  OperatorFailures,
  OperatorHost,
  OperatorHosts,
  OperatorJobs,
  OperatorOverview,
  OperatorPlugins,
  OperatorSpan,
  OperatorSpeed,
  OperatorTrace,
  OperatorTurn,
  OperatorTurns,
  OperatorUser,
  OperatorUsers,
  OracleCard,
  PluginInfo,
  PluginPermission,
  PreferencesPatch,
  Question,
  QuestionAnswered,
  RenderComponentEvent,
  Reply,
  ReplyPart,
  RouterUpdateEvent,
  Rule,
  RuleEffect,
  Run,
  Schedule,
  ScheduleRun,
  ScheduleTrigger,
  ScheduleWithSecret,
  SearchResult,
  SearchResults,
  ServerEventName,
  Session,
  SessionChange,
  SessionPage,
  SessionsChangedEvent,
  Sharing,
  StoppedWork,
  TurnFailure,
  TurnUsage,
  UpdateSchedule,
  Usage,
  UserBlocked,
  UserPreferences,
  UserRules,
  WarningFrame,
} from '@sibyl/protocol';
export type { Capability, MintedToken } from '@sibyl/ucan/browser';
export {
  type ActivityQuery,
  type Approvals,
  checkReceipt,
  type Rules,
  type UserQuestions,
} from './approvals.js';
export type {
  Action,
  ActionView,
  ArgumentSchema,
  BrowserTool,
  CallContext,
  InferArguments,
  JsonSchema,
  StandardSchema,
} from './browser-tools/tool-registry.js';
export type { Chat, ChatMessage, ChatState } from './chat/chat.js';
export { openChat } from './chat/open-chat.js';
export type { AccessKeys, AccessKeyTerms, Delegations, DelegationTerms } from './delegations.js';
export { type ClientErrorCode, OracleClientError } from './errors.js';
export type {
  ConnectionState,
  ServerEvent,
  ServerEvents,
  SessionEvents,
} from './events/reconnecting-socket.js';
export type { Files } from './files.js';
export type { PageOptions, RequestOptions } from './http/http-client.js';
export type { MatrixAccounts } from './matrix-accounts.js';
export type { OperatorRoutes } from './operator.js';
export {
  createOracleClient,
  type MatrixSession,
  type OracleClient,
  type OracleClientOptions,
  type Preferences,
} from './oracle-client.js';
export type { Memory, OwnData } from './own-data.js';
export type { NewSchedule, Schedules } from './schedules.js';
export type { Messages, Runs, Sessions } from './sessions.js';
export { type BrowserSigner, openBrowserSigner } from './signers/browser-signer.js';
export {
  createSigner,
  type DelegationRequest,
  type InvocationRequest,
  type OracleSigner,
  type SigningKey,
} from './signers/signer.js';
export type { StreamOptions, StreamState } from './turns/run-stream.js';
export { type AnswerPart, addPart, type Call, emptyTurn, type Turn } from './turns/turn.js';
export type { MessageToSend } from './turns/turns.js';
