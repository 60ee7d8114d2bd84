export type {
  ActivityEntry,
  ActivityPage,
  Approval,
  ApprovalDecided,
  ApprovalRequestEvent,
  Attachment,
  Citation,
  DelegationInfo,
  DelegationStatus,
  DelegationStored,
  DoneFrame,
  ErrorCode,
  ErrorFrame,
  FileInfo,
  FilePage,
  JsonObject,
  Message,
  MessagePage,
  ModelInfo,
  ModelList,
  OracleCard,
  PluginInfo,
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
  UserPreferences,
  UserRules,
  WarningFrame,
} from '@sibyl/protocol';
export type { Capability, MintedToken } from '@sibyl/ucan/browser';
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
export { createOracleClient } from './create-oracle-client.js';
export { type ClientErrorCode, OracleClientError } from './errors.js';
export type {
  ConnectionState,
  ServerEvent,
  ServerEvents,
  SessionEvents,
} from './events/reconnecting-socket.js';
export type {
  ActivityQuery,
  Approvals,
  Delegations,
  DelegationTerms,
  Files,
  MatrixSession,
  Messages,
  MessageToSend,
  NewSchedule,
  OracleClient,
  OracleClientOptions,
  RequestOptions,
  Rules,
  Runs,
  Schedules,
  Sessions,
} from './oracle-client.js';
export {
  type BrowserSigner,
  type BrowserSignerOptions,
  importBrowserKey,
  openBrowserSigner,
} from './signers/browser-signer.js';
export {
  createSigner,
  type DelegationRequest,
  type InvocationRequest,
  type OracleSigner,
  type SigningKey,
} from './signers/signer.js';
export type { StreamOptions, StreamState } from './turns/run-stream.js';
export { addPart, type Call, emptyTurn, type Turn } from './turns/turn.js';
