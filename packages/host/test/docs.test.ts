import { compileErrors, validate } from '@readme/openapi-parser';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bundledVariables } from './support/bundled-variables.js';
import { startHost, type TestHost } from './support/host.js';
import { TestUser } from './support/user.js';

interface Operation {
  readonly summary?: string;
  readonly security: object[];
  readonly requestBody?: object;
  readonly parameters: { readonly name: string; readonly in: string; readonly schema: object }[];
  readonly responses: Record<string, { description: string; content?: object; headers?: object }>;
}

interface ApiDocument {
  readonly openapi: string;
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { readonly schemas: Record<string, object> };
}

let host: TestHost;
let document: ApiDocument;
beforeAll(async () => {
  host = await startHost({ bundled: [] });
  document = (await (await fetch(`${host.url}/docs/openapi.json`)).json()) as ApiDocument;
});
afterAll(() => host.close());

const operations = () =>
  Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      name: `${method.toUpperCase()} ${path}`,
      operation,
    })),
  );

it('GET /docs/openapi.json describes every route of the host in OpenAPI 3.1', () => {
  expect(document.openapi).toBe('3.1.0');
  expect(operations().map(({ name }) => name)).toEqual([
    'GET /',
    'GET /health',
    'GET /health/ready',
    'GET /.well-known/oracle.json',
    'GET /.well-known/did.json',
    'GET /sessions/events',
    'POST /sessions',
    'GET /sessions',
    'PATCH /sessions/{sessionId}',
    'DELETE /sessions/{sessionId}',
    'POST /sessions/{sessionId}/fork',
    'GET /search',
    'POST /delegation',
    'GET /delegation',
    'DELETE /delegation',
    'GET /delegations',
    'DELETE /delegations',
    'DELETE /delegations/{cid}',
    'POST /keys',
    'GET /keys',
    'DELETE /keys/{id}',
    'POST /invitations',
    'POST /messages/abort',
    'POST /messages/{sessionId}',
    'GET /messages/{sessionId}',
    'PUT /messages/{sessionId}/{messageId}/feedback',
    'DELETE /messages/{sessionId}/{messageId}/feedback',
    'GET /sessions/{sessionId}/messages',
    'GET /sessions/{sessionId}/run',
    'GET /runs/{runId}',
    'DELETE /runs/{runId}',
    'GET /me/export',
    'POST /me/import',
    'GET /me/import/{id}',
    'DELETE /me',
    'GET /usage',
    'POST /files',
    'GET /files',
    'GET /files/{fileId}',
    'DELETE /files/{fileId}',
    'GET /files/{fileId}/info',
    'GET /models',
    'GET /plugins',
    'GET /approvals',
    'GET /approvals/{id}',
    'POST /approvals/{id}',
    'GET /approvals/{id}/receipt',
    'GET /questions',
    'POST /questions/{id}',
    'GET /activity',
    'GET /rules',
    'PUT /rules',
    'DELETE /rules',
    'GET /operator/overview',
    'GET /operator/hosts',
    'GET /operator/turns',
    'GET /operator/turns/{runId}',
    'GET /operator/users',
    'GET /operator/failures',
    'GET /operator/speed',
    'GET /operator/plugins',
    'GET /operator/jobs',
    'GET /operator/audit',
    'POST /operator/block',
    'POST /operator/unblock',
    'GET /me/sharing',
    'PUT /me/sharing',
  ]);
});

it('GET /docs-json is the same document as GET /docs/openapi.json', async () => {
  const [, ...others] = await Promise.all(
    ['/docs/openapi.json', '/docs-json', '/docs-json/'].map(async (path) =>
      (await fetch(host.url + path)).json(),
    ),
  );
  expect(others).toEqual([document, document]);
});

it('GET /docs/openapi.json is a valid document, with the routes of every bundled plugin', async () => {
  const full = await startHost({ env: Object.assign({}, ...Object.values(bundledVariables)) });
  try {
    const found = await (await fetch(`${full.url}/docs/openapi.json`)).json();
    const { paths } = found as ApiDocument;
    expect(Object.keys(paths)).toEqual(expect.arrayContaining(['/app/{path}', '/slack/events']));
    const result = await validate(found);
    expect(result.valid ? '' : compileErrors(result)).toBe('');
    const path = { name: 'path', in: 'path', required: true, schema: { type: 'string' } };
    expect(paths['/app/{path}']?.get?.parameters).toContainEqual(path);
    // Bodies, queries and headers of plugins' routes; errors of other protocols are not those of the host.
    expect(paths['/memory']?.post).toMatchObject({
      requestBody: { required: true, content: { 'application/json': {} } },
      responses: { 400: { content: { 'application/json': {} } } },
    });
    const names = paths['/memory']?.get?.parameters.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(['q', 'limit', 'offset']));
    const completions = paths['/v1/chat/completions']?.post;
    expect(completions?.requestBody).toMatchObject({ required: true });
    expect(completions?.responses[400]).not.toHaveProperty('content');
    expect(completions?.responses[401]?.description).toContain('invalid_access_key');
    for (const run of [paths['/v2/agent/run']?.post, paths['/v2/runs/{runId}']?.get])
      expect(run?.responses[200]).toMatchObject({ content: { 'text/event-stream': {} } });
    expect(paths['/a2a/tasks']?.get?.parameters).toContainEqual(
      expect.objectContaining({ name: 'a2a-version', required: true }),
    );
  } finally {
    await full.close();
  }
});

describe('GET /docs/openapi.json is as strict as the host', () => {
  const parameter = (path: string, method: string, name: string) =>
    document.paths[path]?.[method]?.parameters.find((one) => one.name === name)?.schema;

  it('about integers in queries', () => {
    const range = { type: 'integer', minimum: 1, maximum: 100, default: 20 };
    expect(parameter('/sessions', 'get', 'limit')).toEqual(range);
    expect(parameter('/sessions/{sessionId}/messages', 'get', 'limit')).toEqual(range);
    const rising = { type: 'integer', minimum: 0, maximum: Number.MAX_SAFE_INTEGER };
    expect(parameter('/sessions', 'get', 'offset')).toEqual({ ...rising, default: 0 });
    expect(parameter('/runs/{runId}', 'get', 'after')).toEqual(rising);
  });

  it('about headers', () => {
    expect(parameter('/messages/{sessionId}', 'post', 'idempotency-key')).toEqual({
      type: 'string',
      pattern: '^[!-~]{1,255}$',
    });
    expect(parameter('/messages/{sessionId}', 'post', 'x-timezone')).toEqual({ type: 'string' });
    expect(parameter('/runs/{runId}', 'get', 'last-event-id')).toEqual({
      type: 'string',
      pattern: '^\\d{0,15}$',
    });
  });

  it('about attachments, tokens and optional bodies', () => {
    const { Attachment, SendMessage } = document.components.schemas;
    expect(Attachment).toMatchObject({
      anyOf: [{ required: ['fileId'] }, { required: ['mxcUri'] }, { required: ['eventId'] }],
      additionalProperties: false,
    });
    expect(SendMessage).toMatchObject({
      properties: { mcpInvocations: { maxProperties: 32 }, timezone: { maxLength: 255 } },
    });
    expect(document.paths['/sessions']?.post?.requestBody).toMatchObject({ required: false });
    expect(document.paths['/delegation']?.post?.requestBody).toMatchObject({ required: true });
  });
});

/** Without a described body: a part of a file, or none. */
const WITHOUT_BODY = ['204', '206', '304'];

it('GET /docs/openapi.json has the summary, responses, errors and headers of every route', () => {
  for (const { name, operation } of operations()) {
    expect(operation.summary, name).toBeTruthy();
    const statuses = Object.keys(operation.responses);
    expect(statuses, name).toEqual(expect.arrayContaining(['429', '431', '500']));
    if (operation.security.length > 0) expect(statuses, name).toContain('401');
    for (const [status, response] of Object.entries(operation.responses)) {
      expect(Object.keys(response.headers ?? {})).toContain('X-Request-Id');
      if (WITHOUT_BODY.includes(status)) continue;
      expect(JSON.stringify(response.content ?? null), `${name} ${status}`).toMatch(
        /#\/components\/schemas\/|text\/event-stream|application\/(zip|octet-stream)/,
      );
    }
    expect(operation.parameters.map((p) => p.name)).toContain('x-request-id');
  }
});

it.each([
  ['GET /sessions', 'caller_blocked', 'verification_busy'],
  ['POST /sessions', 'disk_full'],
  ['DELETE /delegation', 'disk_full'],
  ['POST /messages/{sessionId}', 'disk_full', 'forbidden', 'plugin_failed'],
  ['POST /messages/{sessionId}', 'response_schema_mismatch'],
])('GET /docs/openapi.json lists among the errors of %s: %s', (route, ...codes) => {
  const { operation } = operations().find(({ name }) => name === route) ?? {};
  for (const code of codes) expect(JSON.stringify(operation?.responses)).toContain(`\`${code}\``);
  expect(operation?.responses[503]?.headers).toHaveProperty('Retry-After');
});

it('GET /docs/openapi.json distinguishes protected and public routes', () => {
  const open = operations().filter(({ operation }) => operation.security.length === 0);
  expect(open.map(({ name }) => name)).toEqual([
    'GET /',
    'GET /health',
    'GET /health/ready',
    'GET /.well-known/oracle.json',
    'GET /.well-known/did.json',
    'GET /models',
    'GET /plugins',
  ]);
});

it('GET /docs/openapi.json contains the schemas of bodies and queries', () => {
  expect(JSON.stringify(document.paths['/delegation']?.post?.requestBody)).toContain(
    '#/components/schemas/StoreDelegation',
  );
  const names = document.paths['/sessions']?.get?.parameters.map((p) => `${p.in} ${p.name}`);
  expect(names).toEqual(expect.arrayContaining(['query limit', 'query offset']));
});

it('GET /docs/openapi.json refers only to schemas that it contains', () => {
  const text = JSON.stringify(document);
  const referred = new Set(
    [...text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)].map((m) => m[1]),
  );
  expect(Object.keys(document.components.schemas)).toEqual(expect.arrayContaining([...referred]));
  expect(text).not.toContain('#/$defs');
});

it('GET /docs/openapi.json describes each event of GET /runs/:runId', () => {
  const { content } = document.paths['/runs/{runId}']?.get?.responses['200'] ?? {};
  expect(content).toMatchObject({
    'text/event-stream': {
      schema: {
        properties: { event: { enum: expect.arrayContaining(['run', 'message', 'done']) } },
        required: ['event', 'id', 'data'],
      },
    },
  });
  // Its events belong to no run.
  const changes = document.paths['/sessions/events']?.get?.responses['200'];
  expect(changes).toMatchObject({ content: { 'text/event-stream': {} } });
  expect(JSON.stringify(changes)).not.toMatch(/X-Run-Id|router_update/);
});

describe('GET /docs', () => {
  it.each(['/docs', '/docs/'])('needs no inline script at %s', async (path) => {
    const response = await fetch(host.url + path);
    const html = await response.text();
    expect(html).toContain('swagger-ui');
    expect(html).not.toMatch(/<script(?![^>]*\bsrc=)[^>]*>\s*\S/);
    expect(response.headers.get('content-security-policy')).toContain("script-src 'self'");
    for (const [, src] of html.matchAll(/<script[^>]*src=['"]([^'"]+)/g)) {
      const asset = await fetch(new URL(src ?? '', host.url + path));
      expect([asset.status, asset.headers.get('content-type')]).toEqual([
        200,
        expect.stringContaining('javascript'),
      ]);
    }
  });

  it.each([
    '/docs/package.json',
    '/docs/../package.json',
    '/docs/%2e%2e/package.json',
    '/docs/..%2fpackage.json',
  ])('serves nothing else: %s', async (path) => {
    const text = await (await fetch(host.url + path)).text();
    expect(text).not.toContain('"dependencies"');
  });
});

it('GET /sessions sets security headers', async () => {
  const { headers } = await new TestUser(host).request('GET', '/sessions');
  expect(Object.fromEntries(headers)).toMatchObject({
    'content-security-policy': expect.stringContaining("default-src 'none'"),
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'permissions-policy': expect.stringContaining('camera=()'),
    'cache-control': 'no-store',
  });
  expect(headers.get('x-powered-by')).toBeNull();
});
