import { afterEach, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { startHost, type TestHost } from './support/host.js';
import { TestUser } from './support/user.js';

let host: TestHost;
afterEach(() => host.close());

const preflight = (origin: string) =>
  fetch(`${host.url}/sessions`, {
    method: 'OPTIONS',
    headers: {
      origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization,x-auth-type',
    },
  });

it('CORS allows every origin without credentials by default', async () => {
  host = await startHost();
  const { headers } = await preflight('https://anywhere.example');
  expect(headers.get('access-control-allow-origin')).toBe('*');
  expect(headers.get('access-control-allow-credentials')).toBeNull();
  expect(headers.get('access-control-allow-methods')).toBe('GET,POST,PUT,DELETE,PATCH,OPTIONS');
  expect(headers.get('access-control-allow-headers')).toBe(
    'Content-Type,Authorization,x-ucan-delegation,x-matrix-access-token,x-matrix-homeserver,x-did,x-request-id,x-auth-type,x-timezone,Idempotency-Key,Last-Event-ID',
  );
});

it('CORS exposes the request id, also on errors', async () => {
  host = await startHost();
  const { status, headers } = await fetch(`${host.url}/sessions`, {
    headers: { origin: 'https://anywhere.example' },
  });
  expect(status).toBe(401);
  expect(headers.get('access-control-allow-origin')).toBe('*');
  expect(headers.get('access-control-expose-headers')).toBe('X-Request-Id');
});

it('CORS allows only origins in CORS_ORIGIN, with credentials', async () => {
  host = await startHost({ env: { CORS_ORIGIN: 'https://a.example,https://b.example' } });
  const named = await preflight('https://b.example');
  expect(named.headers.get('access-control-allow-origin')).toBe('https://b.example');
  expect(named.headers.get('access-control-allow-credentials')).toBe('true');
  const other = await preflight('https://evil.example');
  expect(other.headers.get('access-control-allow-origin')).toBeNull();
});

it('CORS exposes the headers of surfaces on their own paths, also on errors', async () => {
  host = await startHost();
  const { key } = await createKey(new TestUser(host));
  const read = async (path: string, body: object, authorization: string) => {
    const { status, headers } = await fetch(host.url + path, {
      method: 'POST',
      headers: {
        origin: 'https://anywhere.example',
        authorization,
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
      },
      body: JSON.stringify(body),
    });
    const exposed = headers.get('access-control-expose-headers')?.split(',') ?? [];
    // Others are not readable, although they were sent.
    return { status, exposed, missing: exposed.filter((name) => !headers.has(name)) };
  };
  const messages = [{ id: 'm', role: 'user', content: 'Hello' }];
  const run = { threadId: 't', runId: 'r', messages };
  const general = ['X-Request-Id', 'Retry-After', 'WWW-Authenticate'];
  const answered = await read('/v2/agent/run', run, `Bearer ${key}`);
  expect(answered).toMatchObject({ status: 200, exposed: [...general, 'X-Run-Id'] });
  expect(answered.missing).toEqual(['Retry-After', 'WWW-Authenticate']);
  const clientInfo = { name: 'page', version: '1' };
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  const initialize = { jsonrpc: '2.0', id: 1, method: 'initialize', params };
  expect((await read('/mcp', initialize, `Bearer ${key}`)).exposed).toEqual([
    ...general,
    'Mcp-Session-Id',
  ]);
  const parts = [{ type: 'text', text: 'Hello' }];
  const chat = { id: 'c', messages: [{ id: 'u', role: 'user', parts }] };
  expect((await read('/ui/chat', chat, `Bearer ${key}`)).exposed).toEqual([
    ...general,
    'x-vercel-ai-ui-message-stream',
  ]);
  expect(await read('/mcp', initialize, 'Bearer nonsense')).toEqual({
    status: 401,
    exposed: general,
    missing: ['Retry-After'],
  });
});
