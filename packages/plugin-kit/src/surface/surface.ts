import {
  JsonObject,
  type MessagePage,
  type Multitask,
  type OracleError,
  type PendingAnswer,
  type ReasoningEffort,
  type ReplyPart,
  type RunStatus,
  type SessionPage,
  type ToolCall,
} from '@sibyl/protocol';
import { z } from 'zod';
import type { Caller } from '../routes.js';
import type { OpenInterrupt } from '../turns.js';

/** A tool that the client runs: a call pauses the turn until the client has sent the result. */
export interface ClientTool {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments. */
  readonly schema: JsonObject;
}

/**
 * What the model has to do about client tools: call none of them, call some tool until it has called one of them, or call
 * this one first. The choice ends when the turn pauses for a client tool.
 */
export type ToolChoice = 'none' | 'required' | { readonly tool: string };

/** The `data` of an interrupt that a client tool causes. */
export interface ClientToolCall {
  /** As in the frames of the run; another one if the user has edited the input. */
  readonly toolCallId: string;
  readonly toolName: string;
  readonly args: JsonObject;
}

const CallData = z.object({ toolCallId: z.string(), toolName: z.string(), args: JsonObject });

/** The call that a question is about, if a client tool causes it. */
export const findClientToolCall = ({
  data,
}: Pick<OpenInterrupt, 'data'>): ClientToolCall | undefined => CallData.safeParse(data).data;

/** A message that the client sends, and the session does not contain. */
export interface EarlierMessage {
  readonly role: 'user' | 'assistant';
  readonly text: string;
  /** Calls of an assistant, with their results. */
  readonly toolCalls?: readonly ToolCall[];
  /** Of a user. */
  readonly files?: readonly SurfaceFile[];
}

/** A message for which a surface starts a turn. */
export interface SurfaceTurn {
  readonly sessionId: string;
  /** May be empty if there are files. */
  readonly message: string;
  readonly files?: readonly SurfaceFile[];
  /** As `/models` lists it. */
  readonly model?: string;
  /** For the system prompt, below the instructions of the operator. */
  readonly instructions?: string;
  /** The conversation before the message, for clients that keep it themselves. */
  readonly history?: readonly EarlierMessage[];
  readonly clientTools?: readonly ClientTool[];
  readonly toolChoice?: ToolChoice;
  readonly responseSchema?: JsonObject;
  readonly reasoningEffort?: ReasoningEffort;
  readonly timezone?: string;
  readonly multitask?: Multitask;
  /** A repeated request with this key joins the run of the first one. */
  readonly idempotencyKey?: string;
  /** The `messageId` of the answer that the message follows; after one that is not the latest it begins a branch. */
  readonly after?: string;
}

/**
 * A file that comes with a message: its bytes, or an address, `https:` or `data:`, that the host reads. It is stored for the user
 * as an upload is, once however often it is sent, and attached to the message.
 */
export type SurfaceFile = { readonly name?: string | undefined } & (
  | { readonly data: Uint8Array }
  | { readonly url: string }
);

/** A message of a conversation as its client keeps it. */
export interface ClientMessage {
  /** Chosen by the client; an answer has the `messageId` of its run. */
  readonly id: string;
  readonly role: 'user' | 'assistant' | 'other';
  /** May be empty if there are files. */
  readonly text: string;
  /** Of a user. */
  readonly files?: readonly SurfaceFile[];
}

/** A conversation that a client sends, as a whole or in part. */
export interface ThreadTurn
  extends Omit<
    SurfaceTurn,
    'sessionId' | 'message' | 'files' | 'history' | 'idempotencyKey' | 'after'
  > {
  /** Chosen by the client, or the id of a session; see `openThread`. */
  readonly threadId: string;
  /** Oldest first. */
  readonly messages: readonly ClientMessage[];
  /** Answers the last message of the user again. */
  readonly regenerates?: boolean;
}

/** One attempt to execute a turn; times in milliseconds. */
export interface SurfaceRun {
  readonly runId: string;
  readonly sessionId: string;
  /** Which attempt of its turn it is, from 1. */
  readonly attempt: number;
  readonly status: RunStatus;
  /** Whether its host crashed and another run continues it; a run can be `continued` after a pause too. */
  readonly hasCrashed: boolean;
  readonly createdAt: number;
  readonly updatedAt: number;
  /** Of the answer; the same for all attempts of a turn. */
  readonly messageId: string;
  /** Why it has no complete answer, if that is known. */
  readonly error?: OracleError | undefined;
}

/** A frame of a run and its number. */
export type NumberedPart = ReplyPart & { readonly seq: number };

/** What a caller with a UCAN may read; times are ISO texts. */
export interface CallerSessions {
  /** Newest first. */
  list(page: { readonly limit: number; readonly offset: number }): Promise<CallerSessionPage>;
  /** Whole turns of the active path, oldest first: the newest ones, or those before a message. */
  messages(page: {
    readonly sessionId: string;
    readonly limit: number;
    readonly before?: string | undefined;
  }): Promise<MessagePage>;
  /**
   * The sessions that change, on any host; undefined if it is not known which ones did. Ends with the signal, when the caller loses
   * access, and when the host stops.
   */
  changes(signal: AbortSignal): AsyncIterable<readonly (string | undefined)[]>;
  /** Newest first; of one session, or of all. */
  turns(page: {
    readonly sessionId?: string;
    /** Of the latest run of each turn. */
    readonly statuses?: readonly RunStatus[];
    /** Milliseconds. */
    readonly updatedAfter?: number;
    readonly limit: number;
    /** `next` of the page before. */
    readonly before?: string;
  }): Promise<CallerTurnPage>;
}

export interface CallerTurnPage {
  readonly turns: readonly { readonly first: SurfaceRun; readonly latest: SurfaceRun }[];
  readonly total: number;
  /** Undefined on the last page. */
  readonly next: string | undefined;
}

export interface CallerSessionPage extends Pick<SessionPage, 'total'> {
  readonly sessions: readonly Pick<SessionPage['sessions'][number], SessionField>[];
}

type SessionField = 'sessionId' | 'title' | 'createdAt' | 'lastUpdatedAt';

/** Turns of one authenticated caller. What belongs to others, or is beyond an access key, does not exist. */
export interface CallerTurns {
  /** The only session of the caller's access key, if the key has one. */
  readonly onlySession: string | undefined;
  /**
   * What the caller's access rests on: store it with what is done for the caller later, and ask `Surface.keepsAccess`. Throws
   * for a caller who logged in with a delegation, for whom nothing is done later.
   */
  accessForLater(): CallerAccess;
  /** Undefined with an access key: it lists and reads nothing. */
  readonly sessions: CallerSessions | undefined;
  /** An unlisted session appears in no list and is deleted when it has not been used for 30 days. */
  openSession(options?: {
    readonly title?: string;
    readonly isUnlisted?: boolean;
  }): Promise<{ readonly sessionId: string }>;
  hasSession(sessionId: string): Promise<boolean>;
  /** Deletes an unlisted session; returns whether it was one. Clients of a surface never delete what the user sees in a list. */
  deleteUnlisted(sessionId: string): Promise<boolean>;
  /** The session that a client of this surface knows by its own id; undefined before its first use. */
  findThread(threadId: string): Promise<string | undefined>;
  /** The id that a client of this surface gave a session; undefined if the session has no other id than its own. */
  findThreadId(sessionId: string): Promise<string | undefined>;
  /** As `findThread`, but creates the session. */
  openThread(threadId: string): Promise<{ readonly sessionId: string }>;
  /**
   * Adds what is new in a conversation and answers it. Messages are matched by their ids. A known message with another
   * text, or a new one that does not follow the latest, begins a branch. Missing messages and unknown answers mean nothing.
   * A conversation without anything new joins the run that answers it, or answers again if that run failed.
   */
  continueThread(turn: ThreadTurn): Promise<SurfaceRun>;
  /** Resolves once the message is stored. */
  start(turn: SurfaceTurn): Promise<SurfaceRun>;
  findRun(runId: string): Promise<SurfaceRun | undefined>;
  /** The runs of the turn of a run, oldest first: a paused turn continues as another run. Empty if the run is unknown. */
  listAttempts(runId: string): Promise<readonly SurfaceRun[]>;
  /** The active run of a session, otherwise the last one. */
  currentRun(sessionId: string): Promise<SurfaceRun | undefined>;
  /** Frames after number `after`, past ones first, then live ones; the last is `done`. */
  read(
    runId: string,
    options: { readonly after?: number; readonly signal: AbortSignal },
  ): AsyncIterable<NumberedPart>;
  /** The frames that are stored now; those of a running turn follow within a quarter of a second. */
  readStored(runId: string): AsyncIterable<NumberedPart>;
  /** Cancels the running or paused turn of a session; returns whether there was one. */
  abort(sessionId: string): Promise<boolean>;
  /**
   * Cancels this run, whether it waits, runs or is paused, or the one that continues it after a crash, and never another one of its
   * session; returns whether it was open.
   */
  cancel(runId: string): Promise<boolean>;
  /** What the paused turn of a session waits for. */
  pending(sessionId: string): Promise<readonly OpenInterrupt[]>;
  /** What a run, or the one that continued it after a crash, paused with, also what has been answered since. */
  asked(runId: string): Promise<readonly OpenInterrupt[]>;
  /** As `answer` with the result of a client tool, for a turn that does not continue: a message of the user follows the result. */
  keepResult(result: { readonly id: string; readonly value: unknown }): Promise<void>;
  /** Denies a call that waits for approval; approving it needs the user's signature. */
  deny(denial: {
    readonly id: string;
    readonly reason?: string;
  }): Promise<{ readonly runId: string; readonly pending?: readonly PendingAnswer[] }>;
  /** Answers a question; never an approval, and with an access key no confirmation. */
  answer(answer: {
    readonly id: string;
    readonly value: unknown;
    /** For what follows the answer. */
    readonly toolChoice?: ToolChoice | undefined;
  }): Promise<{ readonly runId: string; readonly pending?: readonly PendingAnswer[] }>;
}

/** Whose access it is, and the UCANs that it ends with: those of an access key, none of a login that the caller signed. */
export interface CallerAccess {
  readonly did: string;
  readonly cids: readonly string[];
  /** Unix seconds; undefined if only its UCANs end it, or nothing. */
  readonly expiration?: number | undefined;
}

/** For plugins that serve clients of another protocol. */
export interface Surface {
  /** Whether a caller of an earlier request still has access: it has not expired, been revoked or blocked. */
  keepsAccess(access: CallerAccess): Promise<boolean>;
  /**
   * `caller` and `signal` are those of a route; with the signal, a request that starts a run can also read it. `user` is the person that
   * the request names; it counts only with an access key for several people.
   */
  for(caller: Caller, signal?: AbortSignal, user?: string): CallerTurns;
  /**
   * The error that a client may see, where a protocol reports errors inside its replies: an outage of the database is
   * `store_unavailable`, and any other unexpected error `internal_error` without details. What a route throws is converted by the host.
   */
  toError(error: unknown): OracleError;
  readonly models: readonly { readonly id: string; readonly isDefault: boolean }[];
  /** What the oracle can do, as `GET /plugins` lists it. */
  listPlugins(): Promise<readonly SurfacePlugin[]>;
}

export interface SurfacePlugin {
  readonly name: string;
  readonly title: string;
  readonly summary: string;
  /** Things a user could say. */
  readonly examples: readonly string[];
  readonly tags: readonly string[];
}
