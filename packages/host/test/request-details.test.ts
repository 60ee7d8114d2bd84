import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { createOracleApp } from '@sibyl/host';
import { expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { useControlledHost } from './support/controlled-host.js';
import { openSession } from './support/stream.js';

const test = useControlledHost();
const MISSING =
  'Missing UCAN authentication: provide Authorization: Bearer <invocation> with X-Auth-Type: ucan, or an x-ucan-delegation header';

it.each([
  ['of AWS', 'Root=1-67891233-abcdef012345678912345678'],
  ['in base64', 'a+b/c=='],
  ['with spaces', 'the first (of two)'],
  ['of 256 characters', '~'.repeat(256)],
])('X-Request-Id %s is echoed', async (_, id) => {
  const { headers, body } = await test.alice.request('GET', '/sessions/unknown', {
    headers: { 'x-request-id': id },
  });
  expect(headers.get('x-request-id')).toBe(id);
  expect(body.requestId).toBe(id);
});

it.each(['x'.repeat(257), 'Zoë'])('X-Request-Id %s is replaced', async (id) => {
  const { headers } = await test.alice.request('GET', '/sessions', {
    headers: { 'x-request-id': id },
  });
  expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
});

it.each([
  ['Basic eDp5', MISSING],
  ['DPoP eyJ', MISSING],
  ['Bearer', MISSING],
  ['Bearer ', MISSING],
  ['Bearer x', 'Invalid UCAN invocation'],
])(
  'UcanGuard answers Authorization %s with the text of its fault',
  async (authorization, message) => {
    const response = await fetch(`${test.host.url}/sessions`, {
      headers: { authorization, 'x-auth-type': 'ucan' },
    });
    expect(await response.json()).toMatchObject({ statusCode: 401, message });
  },
);

it.each([
  ['POST', '/v1/chat/completions'],
  ['GET', '/v1/models'],
  ['POST', '/mcp'],
  ['POST', '/ui/chat'],
  ['POST', '/v2/agent/run'],
  ['POST', '/a2a'],
])('UcanGuard names access keys to callers of %s %s without one', async (method, path) => {
  const answer = await (await fetch(test.host.url + path, { method })).text();
  expect(answer).toContain(MISSING);
  expect(answer).toContain('With an access key of this oracle: Authorization: Bearer <key>');
});

it('UcanGuard names no access keys where none is accepted', async () => {
  const { key } = await createKey(test.alice);
  const response = await fetch(`${test.host.url}/sessions`, {
    headers: { authorization: `Bearer ${key}` },
  });
  expect(await response.json()).toMatchObject({ statusCode: 401, message: MISSING });
});

it('assertOneHost refuses a request with two Host headers', async () => {
  const { port } = new URL(test.host.url);
  const socket = connect(Number(port), '127.0.0.1');
  await once(socket, 'connect');
  socket.write('GET /health HTTP/1.1\r\nHost: a\r\nhOST: b\r\nConnection: close\r\n\r\n');
  const answer = await text(socket);
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(answer).toContain('The request has several Host headers; send one');
});

it('POST /sessions takes a title that is null for none', async () => {
  const created = await test.alice.request('POST', '/sessions', { body: { title: null } });
  expect(created).toMatchObject({ status: 201, body: { title: 'Untitled' } });
});

it('POST /messages/:sessionId takes an empty homeServer for none', async () => {
  const sessionId = await openSession(test.alice);
  const sending = test.alice.request('POST', `/messages/${sessionId}`, {
    body: { message: 'Hello', homeServer: '' },
    headers: { 'x-matrix-homeserver': '' },
  });
  (await test.model.next()).answer('Hi');
  expect(await sending).toMatchObject({ status: 200, body: { status: 'finished' } });
});

it('TurnRunner warns once in a session that a tool is left out', async () => {
  const tools = [{ name: 'odd', description: 'Odd', schema: { type: 'string' } }];
  const sessionId = await openSession(test.alice);
  const send = async (id: string) => {
    const sending = test.alice.request('POST', `/messages/${id}`, {
      body: { message: 'Hello', tools },
    });
    (await test.model.next()).answer('Hi');
    return ((await sending).body.warnings ?? []).map(({ code }: { code: string }) => code);
  };
  expect(await send(sessionId)).toContain('tool_left_out');
  expect(await send(sessionId)).not.toContain('tool_left_out');
  expect(await send(await openSession(test.alice))).toContain('tool_left_out');
});

it('createOracleApp names the option of a misspelled method', async () => {
  const route = { path: '/odd', method: 'PSOT' } as never;
  await expect(createOracleApp({ authExcludedRoutes: [route] })).rejects.toThrow(
    /authExcludedRoutes: the method of \/odd must be a member of RequestMethod/,
  );
});
