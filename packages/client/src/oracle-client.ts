import type {
  AccessKeyCaveats,
  AccessKeyInfo,
  ActivityPage,
  Approval,
  ApprovalDecided,
  AuditLog,
  CreateSchedule,
  DelegationInfo,
  DelegationStatus,
  DelegationStored,
  Erased,
  Fact,
  FactPage,
  Feedback,
  FileInfo,
  FilePage,
  ImportJob,
  JsonObject,
  MatrixLink,
  Message,
  MessagePage,
  ModelList,
  OperatorFailures,
  OperatorHosts,
  OperatorJobs,
  OperatorOverview,
  OperatorPlugins,
  OperatorSpeed,
  OperatorTrace,
  OperatorTurns,
  OperatorUsers,
  OracleCard,
  PageMessages,
  PluginInfo,
  PreferencesPatch,
  Question,
  QuestionAnswered,
  Reply,
  ReplyPart,
  Rule,
  Run,
  Schedule,
  ScheduleRun,
  ScheduleTriggered,
  ScheduleWithSecret,
  SearchResults,
  SendMessage,
  Session,
  SessionPage,
  SessionsChangedEvent,
  Sharing,
  StoppedWork,
  UpdateSchedule,
  Usage,
  UserBlocked,
  UserPreferences,
  UserRules,
} from '@sibyl/protocol';
import type { ScheduleTerms } from '@sibyl/protocol/decisions';
import type { Capability, MintedToken } from '@sibyl/ucan/browser';
import type { Action, ArgumentSchema, BrowserTool } from './browser-tools/tool-registry.js';
import type { SessionEvents } from './events/reconnecting-socket.js';
import type { OracleSigner } from './signers/signer.js';
import type { StreamOptions } from './turns/run-stream.js';

export interface OracleClientOptions {
  /** The oracle's address. */
  readonly url: string | URL;
  readonly signer: OracleSigner;
  /** Replaces `globalThis.fetch`. */
  readonly fetch?: typeof globalThis.fetch;
  /** The user's IANA time zone; defaults to the platform's. */
  readonly timezone?: string;
  /** The user's Matrix session, for attachments and rooms. */
  readonly matrix?: MatrixSession;
}

export interface MatrixSession {
  readonly accessToken: string;
  readonly homeServer: string;
}

/** `signal` cancels the request; a turn that it started continues. */
export interface RequestOptions {
  readonly signal?: AbortSignal;
}

type MessageOptions = Partial<Omit<SendMessage, 'message' | 'regenerate' | 'stream'>>;

/**
 * A message to send: its text, or an object with attachments, model and other fields. With the `parentId` of an earlier
 * message it replaces that one on a new path; `regenerate` asks for another answer instead.
 */
export type MessageToSend =
  | string
  | ({ readonly message: string } & MessageOptions)
  | ({ readonly regenerate: string; readonly message?: never } & MessageOptions);

/** Represents one user at one oracle. */
export interface OracleClient {
  readonly url: string;
  /** The user's DID. */
  readonly did: string;
  /** The oracle's description of itself; requested once and cached. */
  card(): Promise<OracleCard>;
  /** Unix seconds by the oracle's clock once a request has shown that it differs; expirations are compared with it. */
  now(): number;

  readonly sessions: Sessions;
  readonly messages: Messages;
  /** Finds messages and titles of sessions; the best first. */
  search(
    text: string,
    page?: RequestOptions & { readonly limit?: number; readonly offset?: number },
  ): Promise<SearchResults>;
  readonly runs: Runs;
  readonly files: Files;
  readonly delegation: Delegations;
  readonly keys: AccessKeys;
  /** Tool calls that wait for the user's signature. */
  readonly approvals: Approvals;
  /** What tools ask the user while their turn waits. */
  readonly questions: UserQuestions;
  /** What the user lets the oracle do without asking, or not at all. */
  readonly rules: Rules;
  /** What happened on behalf of the user, newest first. */
  activity(query?: ActivityQuery): Promise<ActivityPage>;
  readonly schedules: Schedules;
  /** The user's accounts in Matrix. */
  readonly matrix: MatrixAccounts;
  /** Everything that the oracle stores about the user: export, import, erase. */
  readonly me: OwnData;
  readonly memory: Memory;
  /** For operators of the oracle. */
  readonly operator: OperatorRoutes;
  /** Turns, tokens and cost of the last days; default 30. */
  usage(query?: RequestOptions & { readonly days?: number }): Promise<Usage>;
  /** Redeems an operator's invitation, which gives the user access to this oracle. */
  redeemInvitation(invitation: string): Promise<void>;
  readonly preferences: Preferences;
  readonly models: { list(options?: RequestOptions): Promise<ModelList> };
  /** The oracle's capabilities, by plugin. */
  readonly plugins: { list(options?: RequestOptions): Promise<readonly PluginInfo[]> };

  /** Sends a message and streams the answer; reconnects automatically. */
  stream(
    sessionId: string,
    message: MessageToSend,
    options?: StreamOptions,
  ): AsyncGenerator<ReplyPart, void>;
  /** Streams the active turn of a session from its beginning; ends immediately if there is none. */
  resume(sessionId: string, options?: StreamOptions): AsyncGenerator<ReplyPart, void>;
  /** Cancels the active turn of a session; returns whether there was one. */
  abort(sessionId: string): Promise<boolean>;

  /** Subscribes to a session's events. Loads the socket code on first use. */
  events(sessionId: string): SessionEvents;
  /** Makes a tool available to the model from the next message on; returns a function that removes it. */
  addTool<Schema extends ArgumentSchema>(tool: BrowserTool<Schema>): () => void;
  addAction<Schema extends ArgumentSchema, Rendered>(action: Action<Schema, Rendered>): () => void;
  /** The action with that name, to render its calls. */
  action(name: string): Action | undefined;
  /** Closes every socket. */
  close(): void;
}

export interface Sessions {
  /** With the same `idempotencyKey`, a repeated call returns the session of the first one, such as after a lost reply. */
  create(
    options?: RequestOptions & { readonly title?: string; readonly idempotencyKey?: string },
  ): Promise<Session>;
  /** One page, newest first; `limit` defaults to 20. */
  list(
    page?: RequestOptions & { readonly limit?: number; readonly offset?: number },
  ): Promise<SessionPage>;
  rename(sessionId: string, title: string): Promise<Session>;
  /** Switches to the path through a message, up to the newest message behind it. */
  activate(sessionId: string, messageId: string): Promise<Session>;
  /** Copies the messages up to one into a new session. */
  fork(
    sessionId: string,
    messageId: string,
    options?: { readonly title?: string },
  ): Promise<Session>;
  /** Yields changes of the user's sessions, by any client; `reload` first and whenever some may have been missed. */
  changes(options?: RequestOptions): AsyncGenerator<SessionsChangedEvent, void>;
  delete(sessionId: string): Promise<void>;
}

export interface Messages {
  /** The messages of the active path, oldest first. */
  list(sessionId: string, options?: RequestOptions): Promise<readonly Message[]>;
  /** The newest turns, or the turns before or after a cursor. */
  page(sessionId: string, page?: RequestOptions & Partial<PageMessages>): Promise<MessagePage>;
  /** Sends a message and waits for the whole answer. */
  send(sessionId: string, message: MessageToSend, options?: RequestOptions): Promise<Reply>;
  /** Rates an answer, by its stored id; replaces earlier feedback. */
  setFeedback(sessionId: string, messageId: string, feedback: Feedback): Promise<Feedback>;
  withdrawFeedback(sessionId: string, messageId: string): Promise<void>;
}

export interface Runs {
  /** The active turn of a session, or else the last one. */
  current(sessionId: string, options?: RequestOptions): Promise<Run | null>;
  /** Takes back a message that waits behind another turn. */
  withdraw(runId: string): Promise<void>;
  /** Streams a run from the frame after number `after`; defaults to its beginning. */
  join(
    runId: string,
    options?: StreamOptions & { readonly after?: number },
  ): AsyncGenerator<ReplyPart, void>;
}

/** The user's files at the oracle. Attach one to a message as `{ fileId }`. */
export interface Files {
  /** Stores a file; one with the same bytes is stored once. */
  upload(
    content: Blob | Uint8Array<ArrayBuffer>,
    options?: RequestOptions & {
      readonly name?: string;
      /** Receives the share that was sent, from 0 to 1; only in browsers. */
      readonly onProgress?: (share: number) => void;
    },
  ): Promise<FileInfo>;
  /** One page, newest first; `limit` defaults to 20. */
  list(
    page?: RequestOptions & { readonly limit?: number; readonly offset?: number },
  ): Promise<FilePage>;
  /** A file without its bytes. */
  get(fileId: string, options?: RequestOptions): Promise<FileInfo>;
  /** The response with the bytes as its body, from `start` up to `end`, exclusive. */
  download(
    fileId: string,
    options?: RequestOptions & { readonly start?: number; readonly end?: number },
  ): Promise<Response>;
  delete(fileId: string): Promise<void>;
}

export interface DelegationTerms {
  readonly capabilities: readonly Capability[];
  /** Unix seconds; defaults to one day from now. */
  readonly expiration?: number;
}

export interface AccessKeyTerms extends AccessKeyCaveats {
  /** For the list of keys. */
  readonly name: string;
  /** Unix seconds; defaults to 90 days from now. */
  readonly expiration?: number;
}

/** Keys for programs that cannot sign, such as clients of OpenAI's API. */
export interface AccessKeys {
  /** Signs and registers a key. `key` is a secret that the oracle does not return again. */
  create(terms: AccessKeyTerms): Promise<AccessKeyInfo & { readonly key: string }>;
  /** The user's keys, newest first. */
  list(options?: RequestOptions): Promise<readonly AccessKeyInfo[]>;
  /** Ends a key at once, and the turns that were started with it. */
  revoke(id: string): Promise<void>;
}

export interface Delegations {
  /** Signs a delegation to the oracle without sending it. */
  create(terms: DelegationTerms): Promise<MintedToken>;
  /** Stores a signed delegation at the oracle. */
  store(token: string): Promise<DelegationStored>;
  /** Signs a delegation and stores it. */
  grant(terms: DelegationTerms): Promise<DelegationStored>;
  status(options?: RequestOptions): Promise<DelegationStatus>;
  /** The user's delegations at the oracle, newest first. */
  list(options?: RequestOptions): Promise<readonly DelegationInfo[]>;
  /** Revokes one delegation; without a CID, the current one and those it replaced. Returns what runs no more. */
  revoke(cid?: string): Promise<readonly StoppedWork[]>;
  /** Revokes all delegations at the oracle; returns their number, and what runs no more. */
  revokeAll(): Promise<{ readonly revoked: number; readonly stopped: readonly StoppedWork[] }>;
}

/** A schedule to create; the client signs its delegation. */
export interface NewSchedule
  extends Pick<CreateSchedule, 'name' | 'message' | 'trigger' | 'resultUrl' | 'resultTo'>,
    Partial<Pick<CreateSchedule, 'id' | 'catchUp'>> {
  /** Unix seconds; when the delegation expires and the schedule stops. Defaults to 90 days from now. */
  readonly expiration?: number;
}

/** What the oracle does for the user at set times, or when a webhook arrives. */
export interface Schedules {
  /** Newest first. */
  list(options?: RequestOptions): Promise<readonly Schedule[]>;
  get(id: string, options?: RequestOptions): Promise<Schedule>;
  /** Signs a delegation for the schedule and creates it. The secret of a webhook is in this reply only. */
  create(schedule: NewSchedule): Promise<ScheduleWithSecret>;
  /** Signs the schedule again if it will do something else; its delegation expires when the last one would have, or in 90 days. */
  update(id: string, changes: Omit<UpdateSchedule, 'delegation'>): Promise<Schedule>;
  /** Signs what a schedule does, as it was read, so that it can run, or can run for longer. */
  authorize(
    schedule: Pick<Schedule, 'id' | keyof ScheduleTerms>,
    options?: { readonly expiration?: number },
  ): Promise<Schedule>;
  delete(id: string): Promise<void>;
  /** Starts a run now, in addition to those at its times. */
  run(id: string): Promise<ScheduleTriggered>;
  /** Newest first. */
  runs(
    id: string,
    options?: RequestOptions & { readonly limit?: number },
  ): Promise<readonly ScheduleRun[]>;
  /** Replaces the secret of a webhook. */
  replaceSecret(id: string): Promise<ScheduleWithSecret>;
}

/** Matrix accounts whose messages the oracle answers as the user. */
export interface MatrixAccounts {
  list(options?: RequestOptions): Promise<readonly MatrixLink[]>;
  /**
   * Signs a delegation for an account, such as `@alice:example.org`. The account is linked once it has sent `code` to the oracle.
   * `expiration` is in Unix seconds; it defaults to 90 days from now.
   */
  link(userId: string, options?: { readonly expiration?: number }): Promise<MatrixLink>;
  unlink(userId: string): Promise<void>;
}

interface Days extends RequestOptions {
  readonly days?: number;
  readonly limit?: number;
}

/** What operators see and do; for everyone else each call fails with `forbidden`. */
export interface OperatorRoutes {
  overview(options?: RequestOptions): Promise<OperatorOverview>;
  hosts(options?: RequestOptions): Promise<OperatorHosts>;
  turns(
    options?: RequestOptions & {
      readonly state?: 'open' | 'failed' | 'all';
      readonly user?: string;
      readonly cause?: string;
      readonly limit?: number;
    },
  ): Promise<OperatorTurns>;
  /** The spans of one turn. */
  trace(runId: string, options?: RequestOptions): Promise<OperatorTrace>;
  /** With `user`, only that one, also if it has not used the oracle. */
  users(options?: Days & { readonly user?: string }): Promise<OperatorUsers>;
  failures(options?: Days): Promise<OperatorFailures>;
  /** The time to the first text of answers over the last hours. */
  speed(options?: RequestOptions & { readonly hours?: number }): Promise<OperatorSpeed>;
  plugins(options?: RequestOptions): Promise<OperatorPlugins>;
  jobs(options?: RequestOptions): Promise<OperatorJobs>;
  /** Newest first; `before` is the id of an entry. */
  audit(
    options?: RequestOptions & { readonly limit?: number; readonly before?: string },
  ): Promise<AuditLog>;
  block(user: string, reason?: string): Promise<UserBlocked>;
  unblock(user: string): Promise<UserBlocked>;
}

export interface Approvals {
  /** The tool calls that wait for the user, oldest first. */
  list(options?: RequestOptions & { readonly sessionId?: string }): Promise<readonly Approval[]>;
  get(id: string, options?: RequestOptions): Promise<Approval>;
  /**
   * Signs an approval of exactly the call that is given; with `args`, of a call with these arguments. Without, it signs the
   * `delegates` of the approval too: show them to the user.
   */
  approve(
    approval: Approval,
    options?: { readonly args?: JsonObject; readonly reason?: string },
  ): Promise<ApprovalDecided>;
  /** Signs a denial; the model receives the reason. */
  deny(approval: Approval, options?: { readonly reason?: string }): Promise<ApprovalDecided>;
  /** The receipt of a signed decision, to be stored byte for byte. */
  receipt(id: string, options?: RequestOptions): Promise<string>;
}

export interface UserQuestions {
  /** The open questions of a session. */
  list(sessionId: string, options?: RequestOptions): Promise<readonly Question[]>;
  /** Answers as the schema of the question says; the turn continues once nothing else is open. */
  answer(id: string, value: unknown): Promise<QuestionAnswered>;
}

export interface Rules {
  get(options?: RequestOptions): Promise<UserRules>;
  /** Signs rules and stores them; the first one that matches a tool decides. */
  set(rules: readonly Rule[]): Promise<UserRules>;
  delete(): Promise<void>;
}

export interface ActivityQuery extends RequestOptions {
  readonly limit?: number;
  /** `nextCursor` of the previous page. */
  readonly before?: string;
  readonly sessionId?: string;
}

/** Everything that an oracle stores about the user. */
export interface OwnData {
  /** A zip archive, to be read as it arrives: `body` of the response. */
  export(options?: RequestOptions): Promise<Response>;
  /** Imports an archive of `export`, or an export of ChatGPT, in the background. */
  import(archive: Blob, options?: RequestOptions): Promise<ImportJob>;
  /** The progress of an import. */
  findImport(id: string, options?: RequestOptions): Promise<ImportJob>;
  /** Signs a confirmation and erases everything; it cannot be undone. */
  erase(): Promise<Erased>;
  /** What the user lets operators see besides figures. */
  sharing(options?: RequestOptions): Promise<Sharing>;
  setSharing(sharing: Sharing): Promise<Sharing>;
}

/** How the oracle behaves towards the user. */
export interface Preferences {
  get(options?: RequestOptions): Promise<UserPreferences>;
  /** Absent fields stay, null clears. */
  change(changes: PreferencesPatch): Promise<UserPreferences>;
}

/** The facts that the oracle remembers about the user. */
export interface Memory {
  /** Newest first; with `q`, the best matches first. */
  list(
    page?: RequestOptions & {
      readonly q?: string;
      readonly limit?: number;
      readonly offset?: number;
    },
  ): Promise<FactPage>;
  add(text: string): Promise<Fact>;
  change(id: string, text: string): Promise<Fact>;
  forget(id: string): Promise<void>;
}
