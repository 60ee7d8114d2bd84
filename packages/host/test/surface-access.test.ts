import { beforeEach, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { useControlledHost } from './support/controlled-host.js';
import { openSession } from './support/stream.js';

const test = useControlledHost();
const SECRET = 'the secret of another session';

/** What a key for one session must not reach: another session of the same user, in which a turn is running. */
interface Elsewhere {
  readonly sessionId: string;
  readonly responseId: string;
  readonly runId: string;
}

let own = '';
let elsewhere: Elsewhere;
let headers: Readonly<Record<string, string>>;

const send = async (method: string, path: string, body?: object, as = headers) => {
  const reply = await fetch(test.host.url + path, {
    method,
    headers: {
      ...as,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
    },
    ...(body && { body: JSON.stringify(body) }),
  });
  return { status: reply.status, runId: reply.headers.get('x-run-id') ?? '', reply };
};

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
const messages = [{ role: 'user', content: 'Hello' }];

beforeEach(async () => {
  own = await openSession(test.alice);
  const sessionId = await openSession(test.alice);
  const wide = bearer((await createKey(test.alice)).key);
  headers = bearer((await createKey(test.alice, { session: own })).key);
  const created = send('POST', '/v1/responses', { input: 'Hello', store: true }, wide);
  (await test.model.next()).answer(SECRET);
  const { id: responseId } = (await (await created).reply.json()) as { id: string };
  const run = { threadId: sessionId, runId: 'r', messages: [{ id: 'm', ...messages[0] }] };
  const running = send('POST', '/v2/agent/run', run, wide);
  (await test.model.next()).say(SECRET);
  elsewhere = { sessionId, responseId, runId: (await running).runId };
});

interface Case {
  readonly path: (elsewhere: Elsewhere) => string;
  readonly body?: (elsewhere: Elsewhere) => object;
  /** 200 where the key permits the request; the answer must not contain anything of another session. */
  readonly status?: number;
  /** Whether the request starts a turn, in the session of the key. */
  readonly starts?: boolean;
}

const call = (name: string, more: object = {}) => ({
  path: () => '/mcp',
  body: ({ sessionId: session_id }: Elsewhere) => ({
    jsonrpc: '2.0',
    id: 1,
    method: 'tools/call',
    params: { name, arguments: { session_id, ...more } },
  }),
  status: 200,
});

/** Each surface route with an access key, aimed at another session. */
const CASES: Readonly<Record<string, readonly Case[]>> = {
  'GET /v1/models': [{ path: () => '/v1/models', status: 200 }],
  'POST /v1/chat/completions': [
    {
      path: () => '/v1/chat/completions',
      body: ({ sessionId }) => ({
        model: 'default',
        messages,
        metadata: { session_id: sessionId },
      }),
      status: 403,
    },
    {
      path: () => '/v1/chat/completions',
      body: () => ({ model: 'default', messages, store: true }),
      status: 200,
      starts: true,
    },
  ],
  'POST /v1/responses': [
    {
      path: () => '/v1/responses',
      body: ({ responseId }) => ({ input: 'Hi', previous_response_id: responseId }),
      status: 403,
    },
  ],
  'GET /v1/responses/{id}': [
    { path: ({ responseId }) => `/v1/responses/${responseId}`, status: 404 },
    { path: ({ responseId }) => `/v1/responses/${responseId}?stream=true`, status: 404 },
  ],
  'DELETE /v1/responses/{id}': [
    { path: ({ responseId }) => `/v1/responses/${responseId}`, status: 404 },
  ],
  'POST /v1/responses/{id}/cancel': [
    { path: ({ responseId }) => `/v1/responses/${responseId}/cancel`, status: 404 },
  ],
  'POST /ui/chat': [
    {
      path: () => '/ui/chat',
      body: ({ sessionId: id }) => {
        const parts = [{ type: 'text', text: 'Hello' }];
        return { id, messages: [{ id: 'u', role: 'user', parts }] };
      },
      status: 200,
      starts: true,
    },
  ],
  'GET /ui/chat/{id}/stream': [
    { path: ({ sessionId }) => `/ui/chat/${sessionId}/stream`, status: 204 },
  ],
  'DELETE /ui/chat/{id}/stream': [
    { path: ({ sessionId }) => `/ui/chat/${sessionId}/stream`, status: 204 },
  ],
  'POST /v2/agent/run': [
    {
      path: () => '/v2/agent/run',
      body: ({ sessionId: threadId }) => {
        return { threadId, runId: 'n', messages: [{ id: 'n', role: 'user', content: 'Hello' }] };
      },
      status: 200,
      starts: true,
    },
  ],
  'GET /v2/runs/{runId}': [{ path: ({ runId }) => `/v2/runs/${runId}`, status: 404 }],
  'POST /v2/runs/{runId}/cancel': [
    { path: ({ runId }) => `/v2/runs/${runId}/cancel`, status: 404 },
  ],
  'GET /v2/agent/capabilities': [{ path: () => '/v2/agent/capabilities', status: 200 }],
  'POST /mcp': [
    call('ask', { message: 'Hello' }),
    call('read_answer'),
    call('read_session'),
    call('list_sessions'),
  ],
};

interface ApiDocument {
  readonly paths: Readonly<
    Record<string, Readonly<Record<string, { readonly security: readonly object[] }>>>
  >;
}

/** The routes that accept access keys. */
async function listSurfaceRoutes(): Promise<{ method: string; path: string }[]> {
  const reply = await fetch(`${test.host.url}/docs/openapi.json`);
  const { paths } = (await reply.json()) as ApiDocument;
  return Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations)
      .filter(([, { security }]) => security.some((scheme) => 'accessKey' in scheme))
      .map(([method]) => ({ method: method.toUpperCase(), path })),
  );
}

/** A route of which no case is known: its parameters name what the key must not reach. */
const probe = (path: string): Case[] =>
  (['sessionId', 'responseId', 'runId'] as const).map((id) => ({
    path: (known) => path.replaceAll(/\{\w+\}/g, known[id]),
    body: () => ({}),
  }));

const listSessions = async () => (await test.alice.request('GET', '/sessions')).body.total;
const readMessages = async () =>
  (await test.alice.request('GET', `/messages/${elsewhere.sessionId}`)).body.messages;

/** Sends the request of a case; fails if it succeeds where it must not, or reveals anything. */
async function expectContained(method: string, each: Case): Promise<void> {
  const path = each.path(elsewhere);
  const sent = send(method, path, method === 'GET' ? undefined : each.body?.(elsewhere));
  if (each.starts) (await test.model.next()).answer('Hi.');
  const { status, reply } = await sent;
  const request = `${method} ${path}`;
  expect({ request, status }).toEqual({ request, status: each.status ?? expect.any(Number) });
  expect({ request, leaks: (await reply.text()).includes(SECRET) }).toEqual({
    request,
    leaks: false,
  });
}

it.each(['key', 'delegation'])(
  'the stream of a turn of the user ends with the %s that reads it',
  async (by) => {
    const { key, id } = await createKey(test.alice);
    const delegation = test.alice.delegate();
    const login = { 'x-ucan-delegation': delegation };
    const [path, as, revoke] =
      by === 'key' ? ['/v2/runs/', bearer(key), `/keys/${id}`] : ['/runs/', login, '/delegation'];
    const { reply } = await send('GET', `${path}${elsewhere.runId}`, undefined, as);
    const reader = reply.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!text.includes(SECRET)) {
      const part = await reader?.read();
      if (!part?.value) throw new Error(`The stream ended after ${text}`);
      text += part.value;
    }
    expect((await test.alice.request('DELETE', revoke, { headers: login })).status).toBe(200);
    const readToEnd = async () => {
      for (;;) if ((await reader?.read())?.done) return 'ended';
    };
    expect(await readToEnd()).toBe('ended');
    // The turn itself continues.
    const { run } = (await test.alice.request('GET', `/sessions/${elsewhere.sessionId}/run`)).body;
    expect(run).toMatchObject({ runId: elsewhere.runId, status: 'running' });
  },
);

it('an access key for one session reaches nothing else through any surface route of the API document', async () => {
  const before = { sessions: await listSessions(), messages: await readMessages() };
  const routes = await listSurfaceRoutes();
  const names = routes.map(({ method, path }) => `${method} ${path}`);
  expect(names).toEqual(expect.arrayContaining(Object.keys(CASES)));
  for (const { method, path } of routes)
    for (const each of CASES[`${method} ${path}`] ?? probe(path))
      await expectContained(method, each);
  // The turn in the other session was neither stopped nor joined, and no session was opened or deleted.
  const { run } = (await test.alice.request('GET', `/sessions/${elsewhere.sessionId}/run`)).body;
  expect(run).toMatchObject({ runId: elsewhere.runId, status: 'running' });
  expect({ sessions: await listSessions(), messages: await readMessages() }).toEqual(before);
  expect(test.model.arrived).toBe(0);
});
