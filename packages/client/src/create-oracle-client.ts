import type { MessageList, PluginList } from '@sibyl/protocol';
import type { Action, BrowserTool } from './calls/page-function.js';
import { PageFunctions } from './calls/page-functions.js';
import { createDelegations } from './delegations.js';
import { SocketHub } from './events/socket-hub.js';
import type {
  Messages,
  OracleClient,
  OracleClientOptions,
  Runs,
  Sessions,
} from './oracle-client.js';
import { Http } from './request/http.js';
import { Turns } from './turns/turns.js';

/** A client of the oracle at `url`; nothing is asked before the first call. */
export function createOracleClient(options: OracleClientOptions): OracleClient {
  const url = String(options.url).replace(/\/+$/, '');
  const { signer, fetch = globalThis.fetch.bind(globalThis) } = options;
  const http = new Http({ url, signer, fetch, headers: headersOf(options) });
  const functions = new PageFunctions();
  const sockets = new SocketHub({
    url,
    token: (refused) => (refused ? http.bearer.replace(refused) : http.bearer.token()),
  });
  const turns = new Turns({ http, functions, sockets });
  return {
    url,
    did: signer.did,
    card: () => http.discovery.card(),
    sessions: sessionsOf(http),
    messages: messagesOf(http, turns),
    runs: runsOf(turns),
    delegation: createDelegations(http, signer),
    redeemInvitation: async (invitation) => {
      await http.json({ method: 'POST', path: '/invitations', body: { invitation } });
    },
    preferences: { get: (request) => http.json({ path: '/user-preferences', ...request }) },
    models: { list: (request) => http.ask({ path: '/models', ...request }) },
    plugins: {
      list: async (request) =>
        (await http.ask<PluginList>({ path: '/plugins', ...request })).plugins,
    },
    stream: (...message) => turns.stream(...message),
    resume: (...session) => turns.resume(...session),
    abort: (sessionId) => turns.abort(sessionId),
    events: (sessionId) => sockets.open(sessionId),
    // What a function takes is checked by its schema when it is called.
    addTool: (tool) => functions.addTool(tool as unknown as BrowserTool),
    addAction: (action) => functions.addAction(action as unknown as Action),
    action: (name) => functions.action(name),
    close: () => sockets.close(),
  };
}

/** What goes with every request (contract A3). */
function headersOf({ timezone = ownTimezone(), matrix }: OracleClientOptions) {
  return {
    ...(timezone && { 'x-timezone': timezone }),
    ...(matrix && {
      'x-matrix-access-token': matrix.accessToken,
      'x-matrix-homeserver': matrix.homeServer,
    }),
  };
}

/** Nothing on platforms that do not know where they are. */
function ownTimezone(): string | undefined {
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return timeZone === 'Etc/Unknown' ? undefined : timeZone;
}

const sessionPath = (sessionId: string) => `/sessions/${encodeURIComponent(sessionId)}`;

const sessionsOf = (http: Http): Sessions => ({
  create: ({ title, signal } = {}) =>
    http.json({ method: 'POST', path: '/sessions', body: { title }, signal }),
  list: ({ limit, offset, signal } = {}) =>
    http.json({ path: '/sessions', query: { limit, offset }, signal }),
  rename: (sessionId, title) =>
    http.json({ method: 'PATCH', path: sessionPath(sessionId), body: { title } }),
  delete: async (sessionId) => {
    await http.json({ method: 'DELETE', path: sessionPath(sessionId) });
  },
});

const messagesOf = (http: Http, turns: Turns): Messages => ({
  list: async (sessionId, { signal } = {}) => {
    const path = `/messages/${encodeURIComponent(sessionId)}`;
    return (await http.json<MessageList>({ path, signal })).messages;
  },
  page: (sessionId, { signal, ...query } = {}) =>
    http.json({ path: `${sessionPath(sessionId)}/messages`, query, signal }),
  send: (sessionId, message, options = {}) => turns.send(sessionId, message, options),
});

const runsOf = (turns: Turns): Runs => ({
  current: (sessionId, options = {}) => turns.current(sessionId, options),
  join: (runId, { after = 0, ...options } = {}) => turns.join(runId, after, options),
});
