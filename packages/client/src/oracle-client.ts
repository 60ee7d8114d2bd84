import type {
  ActivityPage,
  ModelList,
  OracleCard,
  PluginInfo,
  PluginList,
  PreferencesPatch,
  ReplyPart,
  SearchResults,
  Usage,
  UserPreferences,
} from '@sibyl/protocol';
import {
  type ActivityQuery,
  type Approvals,
  createApprovals,
  createQuestions,
  createRules,
  type Rules,
  type UserQuestions,
} from './approvals.js';
import {
  type Action,
  type ArgumentSchema,
  type BrowserTool,
  ToolRegistry,
} from './browser-tools/tool-registry.js';
import {
  type AccessKeys,
  createAccessKeys,
  createDelegations,
  type Delegations,
} from './delegations.js';
import { OracleClientError } from './errors.js';
import type { SessionEvents } from './events/reconnecting-socket.js';
import { SessionSockets } from './events/session-sockets.js';
import { createFiles, type Files } from './files.js';
import { HttpClient, type PageOptions, type RequestOptions } from './http/http-client.js';
import { createMatrixAccounts, type MatrixAccounts } from './matrix-accounts.js';
import { createOperatorRoutes, type OperatorRoutes } from './operator.js';
import { createMemory, createOwnData, type Memory, type OwnData } from './own-data.js';
import { createSchedules, type Schedules } from './schedules.js';
import {
  createMessages,
  createRuns,
  createSessions,
  type Messages,
  type Runs,
  type Sessions,
} from './sessions.js';
import type { OracleSigner } from './signers/signer.js';
import type { StreamOptions } from './turns/run-stream.js';
import { type MessageToSend, Turns } from './turns/turns.js';

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

/** Represents one user at one oracle. */
export interface OracleClient extends Readonly<ReturnType<typeof buildClient>> {}

/** Creates a client for the oracle at `url`. It sends nothing until the first call. */
export function createOracleClient(options: OracleClientOptions): OracleClient {
  assertOptions(options);
  return buildClient(parseUrl(options.url), options);
}

/** The types of the resources are named, so that the published type stays readable. */
function buildClient(url: string, options: OracleClientOptions) {
  const { signer, http, tools, sockets, turns } = connect(url, options);
  return {
    url,
    /** The user's DID. */
    did: signer.did,
    /** The oracle's description of itself; requested once and cached. */
    card(): Promise<OracleCard> {
      return http.discovery.card();
    },
    /** Unix seconds by the oracle's clock once a request has shown that it differs; expirations are compared with it. */
    now(): number {
      return http.discovery.now();
    },

    sessions: createSessions(http) as Sessions,
    messages: createMessages(http, turns) as Messages,
    /** Finds messages and titles of sessions; the best first. */
    search(text: string, page?: PageOptions): Promise<SearchResults> {
      const query = { q: text, ...page };
      return http.get('/search', query);
    },
    runs: createRuns(http, turns) as Runs,
    files: createFiles(http) as Files,
    delegation: createDelegations(http, signer) as Delegations,
    keys: createAccessKeys(http, signer) as AccessKeys,
    /** Tool calls that wait for the user's signature. */
    approvals: createApprovals(http, signer) as Approvals,
    /** What tools ask the user while their turn waits. */
    questions: createQuestions(http) as UserQuestions,
    /** What the user lets the oracle do without asking, or not at all. */
    rules: createRules(http, signer) as Rules,
    /** What happened on behalf of the user, newest first. */
    activity(query?: ActivityQuery): Promise<ActivityPage> {
      return http.get('/activity', query);
    },
    schedules: createSchedules(http, signer) as Schedules,
    /** The user's accounts in Matrix. */
    matrix: createMatrixAccounts(http, signer) as MatrixAccounts,
    /** Everything that the oracle stores about the user: export, import, erase. */
    me: createOwnData(http, signer) as OwnData,
    memory: createMemory(http) as Memory,
    /** For operators of the oracle. */
    operator: createOperatorRoutes(http) as OperatorRoutes,
    /** Turns, tokens and cost of the last days; default 30. */
    usage(query?: RequestOptions & { readonly days?: number }): Promise<Usage> {
      return http.get('/usage', query);
    },
    /** Redeems an operator's invitation, which gives the user access to this oracle. */
    async redeemInvitation(invitation: string): Promise<void> {
      await http.requestJson({ method: 'POST', path: '/invitations', body: { invitation } });
    },
    preferences: createPreferences(http) as Preferences,
    models: {
      list(options: RequestOptions = {}): Promise<ModelList> {
        return http.getPublic({ path: '/models', ...options });
      },
    },
    /** The oracle's capabilities, by plugin. */
    plugins: {
      async list(options: RequestOptions = {}): Promise<readonly PluginInfo[]> {
        return (await http.getPublic<PluginList>({ path: '/plugins', ...options })).plugins;
      },
    },

    /** Sends a message and streams the answer; reconnects automatically. */
    stream(
      sessionId: string,
      message: MessageToSend,
      options?: StreamOptions,
    ): AsyncGenerator<ReplyPart, void> {
      return turns.stream(sessionId, message, options);
    },
    /** Streams the active turn of a session from its beginning; ends immediately if there is none. */
    resume(sessionId: string, options?: StreamOptions): AsyncGenerator<ReplyPart, void> {
      return turns.resume(sessionId, options);
    },
    /** Cancels the active turn of a session; returns whether there was one. */
    abort(sessionId: string): Promise<boolean> {
      return turns.abort(sessionId);
    },

    /** Subscribes to a session's events. Loads the socket code on first use. */
    events(sessionId: string): SessionEvents {
      return sockets.open(sessionId);
    },
    /** Makes a tool available to the model from the next message on; returns a function that removes it. */
    addTool<Schema extends ArgumentSchema>(tool: BrowserTool<Schema>): () => void {
      // The types are erased here: the schema checks the arguments of every call.
      return tools.addTool(tool as unknown as BrowserTool);
    },
    addAction<Schema extends ArgumentSchema, Rendered>(
      action: Action<Schema, Rendered>,
    ): () => void {
      return tools.addAction(action as unknown as Action);
    },
    /** The action with that name, to render its calls. */
    action(name: string): Action | undefined {
      return tools.getAction(name);
    },
    /** Closes every socket. */
    close(): void {
      sockets.close();
    },
  };
}

function connect(url: string, options: OracleClientOptions) {
  const { signer, fetch = globalThis.fetch.bind(globalThis) } = options;
  const http = new HttpClient({ url, signer, fetch, headers: buildHeaders(options) });
  const tools = new ToolRegistry();
  const sockets = new SessionSockets({
    url,
    token: (rejected) => (rejected ? http.tokens.replace(rejected) : http.tokens.get()),
  });
  return { signer, http, tools, sockets, turns: new Turns({ http, tools, sockets }) };
}

/** How the oracle behaves towards the user. */
export interface Preferences extends ReturnType<typeof createPreferences> {}

const createPreferences = (http: HttpClient) => ({
  get(options?: RequestOptions): Promise<UserPreferences> {
    return http.get('/user-preferences', options);
  },
  /** Absent fields stay, null clears. */
  change(changes: PreferencesPatch): Promise<UserPreferences> {
    return http.requestJson({ method: 'PATCH', path: '/user-preferences', body: changes });
  },
});

const refuse = (message: string): never => {
  throw new OracleClientError('bad_request', `Invalid ${message}`);
};

/** Throws here, where the mistake is, not in the first request. */
function assertOptions(options: OracleClientOptions | undefined): void {
  const { signer, fetch, timezone, matrix } = options ?? ({} as Partial<OracleClientOptions>);
  if (signer instanceof Promise) refuse('signer: it is a promise, await it');
  if (typeof signer?.invoke !== 'function' || typeof signer.delegate !== 'function')
    refuse('signer: pass what openBrowserSigner, openKeyFile or createSigner returns');
  if (fetch !== undefined && typeof fetch !== 'function') refuse('fetch: it is not a function');
  if (timezone !== undefined && !isTimezone(timezone))
    refuse(`timezone ${JSON.stringify(timezone)}: use a name such as Africa/Nairobi`);
  if (matrix && !(matrix.accessToken && matrix.homeServer))
    refuse('matrix: it needs accessToken and homeServer');
}

function isTimezone(timeZone: string): boolean {
  try {
    return Boolean(timeZone && Intl.DateTimeFormat('en', { timeZone }));
  } catch {
    return false;
  }
}

/** The address without a trailing slash. */
function parseUrl(given: string | URL): string {
  const text = String(given ?? '');
  if (!/^\s*https?:/i.test(text) || !URL.canParse(text))
    refuse(`url ${JSON.stringify(text)}: use an address such as https://oracle.example`);
  const { username, password, search, hash, origin, pathname } = new URL(text);
  if (username || password) refuse('url: remove the user name and password');
  if (search || hash) refuse('url: remove what begins with ? or #');
  return origin + pathname.replace(/\/+$/, '');
}

/** Headers of authenticated requests. The time zone matters to turns; platforms take long to find it the first time. */
function buildHeaders({ timezone, matrix }: OracleClientOptions) {
  const always = matrix && {
    'x-matrix-access-token': matrix.accessToken,
    'x-matrix-homeserver': matrix.homeServer,
  };
  return (method: string): Readonly<Record<string, string>> => {
    const zone = method === 'GET' ? undefined : (timezone ?? readTimezone());
    return { ...always, ...(zone && { 'x-timezone': zone }) };
  };
}

/** Undefined where the platform does not know its time zone. */
function readTimezone(): string | undefined {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return timeZone === 'Etc/Unknown' ? undefined : timeZone;
}
