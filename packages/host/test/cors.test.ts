import { afterEach, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';

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
