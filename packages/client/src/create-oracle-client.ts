import type {
  AccessKeyInfo,
  AccessKeyList,
  DelegationList,
  DelegationRevoked,
  DelegationsRevoked,
  MatrixLinkList,
  MessageList,
  PluginList,
  RegisterAccessKey,
  Schedule,
  ScheduleList,
  ScheduleRunList,
  StoreDelegation,
  UpdateSchedule,
} from '@sibyl/protocol';
import {
  buildScheduleClaims,
  RUN_ABILITY,
  type ScheduleTerms,
  toOracleResource,
} from '@sibyl/protocol/decisions';
import type { IpldMap, MintedToken } from '@sibyl/ucan/browser';
import { createApprovals, createQuestions, createRules, listActivity } from './approvals.js';
import { type Action, type BrowserTool, ToolRegistry } from './browser-tools/tool-registry.js';
import { OracleClientError, toSigningError } from './errors.js';
import { SessionSockets } from './events/session-sockets.js';
import { HttpClient } from './http/http-client.js';
import { createOperatorRoutes } from './operator.js';
import type {
  AccessKeys,
  Delegations,
  Files,
  MatrixAccounts,
  Messages,
  OracleClient,
  OracleClientOptions,
  Runs,
  Schedules,
  Sessions,
} from './oracle-client.js';
import { createMemory, createOwnData, readUsage } from './own-data.js';
import type { DelegationRequest, OracleSigner } from './signers/signer.js';
import { watchSessions } from './turns/run-stream.js';
import { Turns } from './turns/turns.js';

/** Creates a client for the oracle at `url`. It sends nothing until the first call. */
export function createOracleClient(options: OracleClientOptions): OracleClient {
  assertOptions(options);
  const url = parseUrl(options.url);
  const { signer, fetch = globalThis.fetch.bind(globalThis) } = options;
  const http = new HttpClient({ url, signer, fetch, headers: buildHeaders(options) });
  const tools = new ToolRegistry();
  const sockets = new SessionSockets({
    url,
    token: (rejected) => (rejected ? http.tokens.replace(rejected) : http.tokens.get()),
  });
  const turns = new Turns({ http, tools, sockets });
  return {
    url,
    did: signer.did,
    card: () => http.discovery.card(),
    now: () => http.discovery.now(),
    sessions: createSessions(http),
    messages: createMessages(http, turns),
    search: (q, { limit, offset, signal } = {}) =>
      http.requestJson({ path: '/search', query: { q, limit, offset }, signal }),
    runs: createRuns(http, turns),
    files: createFiles(http),
    delegation: createDelegations(http, signer),
    approvals: createApprovals(http, signer),
    questions: createQuestions(http),
    rules: createRules(http, signer),
    activity: (query) => listActivity(http, query),
    schedules: createSchedules(http, signer),
    matrix: createMatrixAccounts(http, signer),
    me: createOwnData(http, signer),
    operator: createOperatorRoutes(http),
    memory: createMemory(http),
    usage: (query) => readUsage(http, query),
    keys: createAccessKeys(http, signer),
    redeemInvitation: async (invitation) => {
      await http.requestJson({ method: 'POST', path: '/invitations', body: { invitation } });
    },
    preferences: {
      get: (request) => http.requestJson({ path: '/user-preferences', ...request }),
      change: (body) => http.requestJson({ method: 'PATCH', path: '/user-preferences', body }),
    },
    models: { list: (request) => http.getPublic({ path: '/models', ...request }) },
    plugins: {
      list: async (request) =>
        (await http.getPublic<PluginList>({ path: '/plugins', ...request })).plugins,
    },
    stream: (...message) => turns.stream(...message),
    resume: (...session) => turns.resume(...session),
    abort: (sessionId) => turns.abort(sessionId),
    events: (sessionId) => sockets.open(sessionId),
    // The types are erased here: the schema checks the arguments of every call.
    addTool: (tool) => tools.addTool(tool as unknown as BrowserTool),
    addAction: (action) => tools.addAction(action as unknown as Action),
    action: (name) => tools.getAction(name),
    close: () => sockets.close(),
  };
}

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

const toSessionPath = (sessionId: string) => `/sessions/${encodeURIComponent(sessionId)}`;

const createSessions = (http: HttpClient): Sessions => ({
  create: ({ title, idempotencyKey, signal } = {}) =>
    http.requestJson({
      method: 'POST',
      path: '/sessions',
      body: { title },
      ...(idempotencyKey !== undefined && { headers: { 'idempotency-key': idempotencyKey } }),
      signal,
    }),
  list: ({ limit, offset, signal } = {}) =>
    http.requestJson({ path: '/sessions', query: { limit, offset }, signal }),
  rename: (sessionId, title) =>
    http.requestJson({ method: 'PATCH', path: toSessionPath(sessionId), body: { title } }),
  activate: (sessionId, activeMessageId) =>
    http.requestJson({
      method: 'PATCH',
      path: toSessionPath(sessionId),
      body: { activeMessageId },
    }),
  fork: (sessionId, messageId, { title } = {}) =>
    http.requestJson({
      method: 'POST',
      path: `${toSessionPath(sessionId)}/fork`,
      body: { messageId, title },
    }),
  changes: (options) => watchSessions(http, options),
  delete: async (sessionId) => {
    await http.requestJson({ method: 'DELETE', path: toSessionPath(sessionId) });
  },
});

const createMessages = (http: HttpClient, turns: Turns): Messages => ({
  list: async (sessionId, { signal } = {}) => {
    const path = `/messages/${encodeURIComponent(sessionId)}`;
    return (await http.requestJson<MessageList>({ path, signal })).messages;
  },
  page: (sessionId, { signal, ...query } = {}) =>
    http.requestJson({ path: `${toSessionPath(sessionId)}/messages`, query, signal }),
  send: (sessionId, message, options = {}) => turns.send(sessionId, message, options),
  setFeedback: (sessionId, messageId, body) =>
    http.requestJson({ method: 'PUT', path: toFeedbackPath(sessionId, messageId), body }),
  withdrawFeedback: async (sessionId, messageId) => {
    await http.requestJson({ method: 'DELETE', path: toFeedbackPath(sessionId, messageId) });
  },
});

const toFeedbackPath = (sessionId: string, messageId: string) =>
  `/messages/${encodeURIComponent(sessionId)}/${encodeURIComponent(messageId)}/feedback`;

const createRuns = (http: HttpClient, turns: Turns): Runs => ({
  withdraw: async (runId) => {
    await http.requestJson({ method: 'DELETE', path: `/runs/${encodeURIComponent(runId)}` });
  },
  current: (sessionId, options = {}) => turns.current(sessionId, options),
  join: (runId, { after = 0, ...options } = {}) => turns.join(runId, after, options),
});

const toFilePath = (fileId: string) => `/files/${encodeURIComponent(fileId)}`;

const createFiles = (http: HttpClient): Files => ({
  upload: (content, { name, signal, onProgress } = {}) => {
    const query = { name: name ?? (content as Partial<File>).name };
    return http.requestJson({ method: 'POST', path: '/files', query, content, signal, onProgress });
  },
  list: ({ limit, offset, signal } = {}) =>
    http.requestJson({ path: '/files', query: { limit, offset }, signal }),
  get: (fileId, options = {}) =>
    http.requestJson({ path: `${toFilePath(fileId)}/info`, ...options }),
  download: (fileId, { start, end, signal } = {}) => {
    const isPart = start !== undefined || end !== undefined;
    const range = `bytes=${start ?? 0}-${end === undefined ? '' : end - 1}`;
    return http.request({
      path: toFilePath(fileId),
      signal,
      ...(isPart && { headers: { range } }),
    });
  },
  delete: async (fileId) => {
    await http.requestJson({ method: 'DELETE', path: toFilePath(fileId) });
  },
});

const PATH = '/delegation';
const LIST_PATH = '/delegations';
const DAY_SECONDS = 86_400;

/** Delegations from the user to the oracle. */
function createDelegations(http: HttpClient, signer: OracleSigner): Delegations {
  const create: Delegations['create'] = ({ capabilities, expiration }) =>
    signToOracle(http, signer, { capabilities, expiration, days: 1 });
  const store: Delegations['store'] = (raw) => {
    const body: StoreDelegation = { raw };
    return http.requestJson({ method: 'POST', path: PATH, body });
  };
  return {
    create,
    store,
    grant: async (terms) => store((await create(terms)).token),
    status: (options = {}) => http.requestJson({ path: PATH, ...options }),
    list: async (options = {}) =>
      (await http.requestJson<DelegationList>({ path: LIST_PATH, ...options })).delegations,
    revoke: async (cid) => {
      const path = cid === undefined ? PATH : `${LIST_PATH}/${encodeURIComponent(cid)}`;
      return (await http.requestJson<DelegationRevoked>({ method: 'DELETE', path })).stopped ?? [];
    },
    revokeAll: async () => {
      const request = { method: 'DELETE', path: LIST_PATH } as const;
      const { revoked, stopped = [] } = await http.requestJson<DelegationsRevoked>(request);
      return { revoked, stopped };
    },
  };
}

const KEYS_PATH = '/keys';
const KEY_DAYS = 90;
// Not from the protocol package at run time: it would add zod to the bundle.
const KEY_CAPABILITY = { can: 'oracle/chat', with: 'ixo:oracle' } satisfies AccessKeyCapability;
type AccessKeyCapability = typeof import('@sibyl/protocol').ACCESS_KEY_CAPABILITY;

/** Access keys of the user. */
function createAccessKeys(http: HttpClient, signer: OracleSigner): AccessKeys {
  return {
    create: async ({ name, expiration, ...caveats }) => {
      // Caveats that are undefined must be absent from what is signed.
      const nb: IpldMap = JSON.parse(JSON.stringify(caveats));
      const capabilities = [{ ...KEY_CAPABILITY, nb }];
      const terms = { capabilities, expiration, days: KEY_DAYS };
      const { token } = await signToOracle(http, signer, terms);
      const body: RegisterAccessKey = { token, name };
      const path = KEYS_PATH;
      const info = await http.requestJson<AccessKeyInfo>({ method: 'POST', path, body });
      return { ...info, key: token };
    },
    list: async (options = {}) =>
      (await http.requestJson<AccessKeyList>({ path: KEYS_PATH, ...options })).keys,
    revoke: async (id) => {
      const path = `${KEYS_PATH}/${encodeURIComponent(id)}`;
      await http.requestJson({ method: 'DELETE', path });
    },
  };
}

interface OracleTerms extends Pick<DelegationRequest, 'capabilities'> {
  readonly expiration: number | undefined;
  /** Days from now until it expires, without `expiration`. */
  readonly days: number;
}

/** Signs a delegation to the oracle. */
async function signToOracle(
  http: HttpClient,
  signer: OracleSigner,
  { capabilities, expiration, days }: OracleTerms,
): Promise<MintedToken> {
  const { did: audience } = await http.discovery.card();
  const expiresAt = expiration ?? http.discovery.now() + days * DAY_SECONDS;
  return sign(signer, { audience, capabilities, expiration: expiresAt });
}

const sign = (signer: OracleSigner, request: DelegationRequest): Promise<MintedToken> =>
  signer.delegate(request).catch((cause) => {
    throw toSigningError(cause);
  });

const RUN_DAYS = 90;

interface RunTerms {
  /** What the resource ends with. */
  readonly purpose: string;
  readonly nb?: IpldMap;
  readonly expiration?: number | undefined;
}

/** Signs that the oracle may run turns for the user; returns the token. */
async function delegateRuns(
  http: HttpClient,
  signer: OracleSigner,
  { purpose, nb, expiration }: RunTerms,
): Promise<string> {
  const { did: audience } = await http.discovery.card();
  const resource = `${toOracleResource(audience)}:${purpose}`;
  const capabilities = [{ can: RUN_ABILITY, with: resource, ...(nb && { nb }) }];
  return (await signToOracle(http, signer, { capabilities, expiration, days: RUN_DAYS })).token;
}

const LINKS_PATH = '/matrix/links';

function createMatrixAccounts(http: HttpClient, signer: OracleSigner): MatrixAccounts {
  return {
    list: async (options = {}) =>
      (await http.requestJson<MatrixLinkList>({ path: LINKS_PATH, ...options })).links,
    link: async (userId, { expiration } = {}) => {
      const purpose = `matrix/${encodeURIComponent(userId)}`;
      const delegation = await delegateRuns(http, signer, { purpose, expiration });
      return http.requestJson({ method: 'POST', path: LINKS_PATH, body: { userId, delegation } });
    },
    unlink: async (userId) => {
      const path = `${LINKS_PATH}/${encodeURIComponent(userId)}`;
      await http.requestJson({ method: 'DELETE', path });
    },
  };
}

const SCHEDULES_PATH = '/schedules';
/** What the delegation of a schedule signs. */
const SIGNED = ['message', 'trigger', 'resultUrl', 'resultTo'] as const;

/** Schedules of the user, each with a delegation for itself alone and for what it does. */
function createSchedules(http: HttpClient, signer: OracleSigner): Schedules {
  const toPath = (id: string) => `${SCHEDULES_PATH}/${encodeURIComponent(id)}`;
  const get: Schedules['get'] = (id, options = {}) =>
    http.requestJson({ path: toPath(id), ...options });
  const change = (id: string, body: UpdateSchedule): Promise<Schedule> =>
    http.requestJson({ method: 'PATCH', path: toPath(id), body });
  const delegate = async (
    { id, ...terms }: ScheduleTerms & Pick<Schedule, 'id'>,
    expiration?: number,
  ) => {
    const nb = { ...(await buildScheduleClaims(terms)) };
    return delegateRuns(http, signer, { purpose: `schedule/${id}`, nb, expiration });
  };
  return {
    list: async (options = {}) =>
      (await http.requestJson<ScheduleList>({ path: SCHEDULES_PATH, ...options })).schedules,
    get,
    create: async ({ id = crypto.randomUUID(), expiration, ...schedule }) => {
      const delegation = await delegate({ ...schedule, id }, expiration);
      const body = { ...schedule, id, delegation };
      return http.requestJson({ method: 'POST', path: SCHEDULES_PATH, body });
    },
    update: async (id, changes) => {
      if (!SIGNED.some((field) => changes[field] !== undefined)) return change(id, changes);
      const { delegation: before, ...schedule } = await get(id);
      // Changes that are undefined change nothing.
      const terms = { ...schedule, ...JSON.parse(JSON.stringify(changes)) };
      const { expiration = 0 } = before ?? {};
      const isValid = expiration > http.discovery.now();
      const delegation = await delegate(terms, isValid ? expiration : undefined);
      return change(id, { ...changes, delegation });
    },
    authorize: async (schedule, { expiration } = {}) =>
      change(schedule.id, { delegation: await delegate(schedule, expiration) }),
    delete: async (id) => {
      await http.requestJson({ method: 'DELETE', path: toPath(id) });
    },
    run: (id) => http.requestJson({ method: 'POST', path: `${toPath(id)}/run` }),
    runs: async (id, { limit, signal } = {}) => {
      const path = `${toPath(id)}/runs`;
      return (await http.requestJson<ScheduleRunList>({ path, query: { limit }, signal })).runs;
    },
    replaceSecret: (id) => http.requestJson({ method: 'POST', path: `${toPath(id)}/secret` }),
  };
}
