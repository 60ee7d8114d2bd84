import type {
  DelegationInfo,
  DelegationStatus,
  DelegationStored,
  Message,
  MessagePage,
  ModelList,
  OracleCard,
  PageMessages,
  PluginInfo,
  Reply,
  ReplyPart,
  Run,
  SendMessage,
  Session,
  SessionPage,
  UserPreferences,
} from '@sibyl/protocol';
import type { Capability, MintedToken } from '@sibyl/ucan/browser';
import type { Action, ArgumentSchema, BrowserTool } from './browser-tools/tool-registry.js';
import type { SessionEvents } from './events/session-events.js';
import type { OracleSigner } from './signers/signer.js';
import type { StreamOptions } from './turns/run-stream.js';

export interface OracleClientOptions {
  /** Where the oracle is. */
  readonly url: string | URL;
  readonly signer: OracleSigner;
  /** Takes the place of the platform's own. */
  readonly fetch?: typeof globalThis.fetch;
  /** The user's IANA time zone; the platform's own unless given. */
  readonly timezone?: string;
  /** The user's Matrix session, for attachments and rooms. */
  readonly matrix?: MatrixSession;
}

export interface MatrixSession {
  readonly accessToken: string;
  readonly homeServer: string;
}

/** Ends a request; a turn it started goes on. */
export interface RequestOptions {
  readonly signal?: AbortSignal;
}

/** A message to send: its text, or with everything that may come with it (contract A2, B3). */
export type MessageToSend =
  | string
  | (Pick<SendMessage, 'message'> & Partial<Omit<SendMessage, 'message' | 'stream'>>);

/** Talks to one oracle as one user. */
export interface OracleClient {
  readonly url: string;
  /** The user's DID. */
  readonly did: string;
  /** What the oracle says of itself; asked once. */
  card(): Promise<OracleCard>;

  readonly sessions: Sessions;
  readonly messages: Messages;
  readonly runs: Runs;
  readonly delegation: Delegations;
  /** Redeems an invitation of the operator, so that the user may use this oracle. */
  redeemInvitation(invitation: string): Promise<void>;
  readonly preferences: { get(options?: RequestOptions): Promise<UserPreferences> };
  readonly models: { list(options?: RequestOptions): Promise<ModelList> };
  /** What the oracle can do, by plugin. */
  readonly plugins: { list(options?: RequestOptions): Promise<readonly PluginInfo[]> };

  /** Sends a message and reads the answer as it comes, joining again by itself after a drop. */
  stream(
    sessionId: string,
    message: MessageToSend,
    options?: StreamOptions,
  ): AsyncGenerator<ReplyPart, void>;
  /** Reads the turn at work in a session from its beginning; ends at once when there is none. */
  resume(sessionId: string, options?: StreamOptions): AsyncGenerator<ReplyPart, void>;
  /** Ends the turn at work in a session; says whether there was one. */
  abort(sessionId: string): Promise<boolean>;

  /** Listens to a session; the socket's code is loaded when this is first called. */
  events(sessionId: string): SessionEvents;
  /** Offers a function of the page to the model from the next message on; returns what ends it. */
  addTool<Schema extends ArgumentSchema>(tool: BrowserTool<Schema>): () => void;
  addAction<Schema extends ArgumentSchema, Rendered>(action: Action<Schema, Rendered>): () => void;
  /** The action of that name, for whoever renders its calls. */
  action(name: string): Action | undefined;
  /** Closes every socket. */
  close(): void;
}

export interface Sessions {
  create(options?: RequestOptions & { readonly title?: string }): Promise<Session>;
  /** One page, newest first; 20 unless `limit` says otherwise. */
  list(
    page?: RequestOptions & { readonly limit?: number; readonly offset?: number },
  ): Promise<SessionPage>;
  rename(sessionId: string, title: string): Promise<Session>;
  delete(sessionId: string): Promise<void>;
}

export interface Messages {
  /** All messages, oldest first. */
  list(sessionId: string, options?: RequestOptions): Promise<readonly Message[]>;
  /** The newest turns, or those before or after a cursor. */
  page(sessionId: string, page?: RequestOptions & Partial<PageMessages>): Promise<MessagePage>;
  /** Sends a message and waits for the whole answer. */
  send(sessionId: string, message: MessageToSend, options?: RequestOptions): Promise<Reply>;
}

export interface Runs {
  /** The turn at work in a session, else the last one. */
  current(sessionId: string, options?: RequestOptions): Promise<Run | null>;
  /** Reads a run after the frame with that number; from its beginning unless given. */
  join(
    runId: string,
    options?: StreamOptions & { readonly after?: number },
  ): AsyncGenerator<ReplyPart, void>;
}

export interface DelegationTerms {
  readonly capabilities: readonly Capability[];
  /** Unix seconds; a day from now unless given. */
  readonly expiration?: number;
}

export interface Delegations {
  /** Signs a delegation to the oracle without sending it. */
  create(terms: DelegationTerms): Promise<MintedToken>;
  /** Gives the oracle a delegation to keep. */
  store(token: string): Promise<DelegationStored>;
  /** Signs and stores. */
  grant(terms: DelegationTerms): Promise<DelegationStored>;
  status(options?: RequestOptions): Promise<DelegationStatus>;
  /** The user's delegations that the oracle knows of, newest first. */
  list(options?: RequestOptions): Promise<readonly DelegationInfo[]>;
  /** Revokes one delegation; without a CID, the stored one and those it replaced. */
  revoke(cid?: string): Promise<void>;
  /** Revokes every delegation that the oracle knows of; returns how many. */
  revokeAll(): Promise<number>;
}
