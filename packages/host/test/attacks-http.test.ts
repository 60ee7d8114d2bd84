import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureBuilt } from '../../../scripts/build.ts';
import { startHost, type TestHost } from './support/host.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

// The page is served as it was built.
ensureBuilt();

let host: TestHost;
let alice: TestUser;
let mallory: TestUser;

beforeAll(async () => {
  host = await startHost();
  alice = new TestUser(host);
  mallory = new TestUser(host);
});

afterAll(() => host?.close());

interface RawAnswer {
  readonly status: number;
  readonly requestId: string | undefined;
  readonly body: string;
}

/** Sends a request byte for byte as it is written here. */
function send(head: string, lines: readonly string[] = []): Promise<RawAnswer> {
  const { port, hostname } = new URL(host.url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    let text = '';
    socket.setEncoding('utf8').on('data', (part) => {
      text += part;
    });
    socket.on('error', reject).on('close', () => {
      const [top = '', ...body] = text.split('\r\n\r\n');
      const requestId = /^x-request-id: (.*)$/im.exec(top)?.[1];
      resolve({ status: Number(top.split(' ')[1]), requestId, body: body.join('\r\n\r\n') });
    });
    socket.write([head, 'Host: x', 'Connection: close', ...lines, '', ''].join('\r\n'));
  });
}

describe('HTTP headers', () => {
  const GOOD = () => `Authorization: ${alice.headers.authorization}`;
  const BAD = 'Authorization: Bearer AAAA';
  const UCAN = 'X-Auth-Type: ucan';
  const delegation = (user: () => TestUser) => `x-ucan-delegation: ${user().delegate()}`;

  it.each<[string, number, () => string[]]>([
    ['a bearer in any case', 200, () => [GOOD().replace('Bearer', 'bEaReR'), 'x-AUTH-type: UCAN']],
    ['a good bearer before a bad one', 200, () => [GOOD(), BAD, UCAN]],
    ['a bad bearer before a good one', 401, () => [BAD, GOOD(), UCAN]],
    ['the type twice', 200, () => [GOOD(), UCAN, UCAN]],
    ['a bad bearer, the type twice, a delegation', 401, () => [BAD, UCAN, UCAN, delegation(a)]],
    ['a bad bearer, types, a delegation', 401, () => [BAD, `${UCAN}, basic`, delegation(a)]],
    ['a bad bearer and a good delegation', 401, () => [BAD, UCAN, delegation(a)]],
    ['two delegations', 401, () => [delegation(a), delegation(m)]],
    ['two tokens in one bearer', 401, () => [`${GOOD()}, ${GOOD()}`, UCAN]],
    ['another scheme', 401, () => [GOOD().replace('Bearer', 'Basic'), UCAN]],
    ['a type with an underscore', 401, () => [GOOD(), 'X_Auth_Type: ucan']],
    ['a folded line', 400, () => [GOOD(), UCAN, 'X-Y: a\r\n b']],
    ['a NUL', 400, () => [GOOD(), UCAN, 'X-Y: a\0b']],
    ['two lengths', 400, () => [GOOD(), UCAN, 'Content-Length: 1', 'Content-Length: 2']],
    ['a length and chunks', 400, () => [GOOD(), 'Content-Length: 5', 'Transfer-Encoding: chunked']],
    ['an expectation', 200, () => [GOOD(), UCAN, 'Expect: the-unexpected']],
    ['another protocol', 200, () => [GOOD(), UCAN, 'Connection: Upgrade', 'Upgrade: h2c']],
    ['another method', 200, () => [GOOD(), UCAN, 'X-HTTP-Method-Override: DELETE']],
  ])('%s: %i', async (_, status, lines) => {
    const answer = await send('GET /sessions HTTP/1.1', lines());
    expect(answer.status).toBe(status);
    expect(answer.requestId).toMatch(/^[\w-]{36}$/);
  });

  const a = () => alice;
  const m = () => mallory;

  it.each(['a\tb', 'ä', '\u007f', 'x'.repeat(257), ''])(
    'give no name to a request that is called %j',
    async (id) => {
      const { requestId } = await send('GET / HTTP/1.1', [`x-request-id: ${id}`]);
      expect(requestId).toMatch(/^[\w-]{36}$/);
    },
  );
});

describe('HTTP paths', () => {
  const climbs = [
    '..%2f..%2fpackage.json',
    '../../package.json',
    '%2e%2e/%2e%2e/package.json',
    '..\\..\\package.json',
    '..%5c..%5cpackage.json',
    '%252e%252e%252fpackage.json',
    '//etc/passwd',
    'swagger-ui.css%00.js',
    'index.html%00',
    '%00',
    'package.json',
    '__proto__',
    'constructor',
    '%c0%ae%c0%ae%c0%afpackage.json',
  ];

  it.each(['/docs/', '/app/', '/app/assets/'])('lead nowhere below %s', async (folder) => {
    for (const path of climbs) {
      const { status, body } = await send(`GET ${folder}${path} HTTP/1.1`);
      expect([400, 404], path).toContain(status);
      expect(JSON.parse(body).statusCode).toBe(status);
    }
  });

  it.each(['*', '/%', '/sessions/%', '/messages/%ff', '/runs/%E0%A4%A', '//app/'])(
    '%s is answered as JSON',
    async (path) => {
      const { status, body } = await send(`GET ${path} HTTP/1.1`);
      expect([400, 401, 404]).toContain(status);
      expect(JSON.parse(body)).toMatchObject({ statusCode: status, requestId: expect.any(String) });
    },
  );

  it('of the page are served with a strict policy', async () => {
    const { headers } = await fetch(`${host.url}/app/`);
    const policy = headers.get('content-security-policy') ?? '';
    for (const rule of ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"])
      expect(policy).toContain(rule);
    // Images of other servers are shown once the user has agreed.
    const images = "img-src 'self' blob: https:;";
    expect(policy).toContain(images);
    expect(policy.replace(images, '')).not.toMatch(/unsafe|\*|data:|blob:|https:/);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('cross-origin-opener-policy')).toBe('same-origin');
    expect(headers.get('cross-origin-resource-policy')).toBe('same-origin');
    expect(headers.get('permissions-policy')).toContain('microphone=()');
  });
});

describe('an HTTP body', () => {
  const deep = (depth: number) => '['.repeat(depth) + ']'.repeat(depth);
  const long = JSON.stringify('x'.repeat(1_000_000));

  async function post(method: string, path: string, body: string) {
    const sent = { method, headers: { ...alice.headers, 'content-type': 'application/json' } };
    const response = await fetch(host.url + path, { ...sent, body });
    return { status: response.status, body: await response.text() };
  }

  const tool = (schema: string) => `{"name": "a", "description": "b", "schema": ${schema}}`;
  const inMessage = (field: string, around = (value: string) => value) =>
    [
      'POST',
      '/messages/:id',
      (value: string) => `{"message": "x", "${field}": ${around(value)}}`,
    ] as const;
  const bodies: readonly (readonly [string, string, (value: string) => string])[] = [
    ['POST', '/sessions', (value) => value.replace('null', '1')],
    ['POST', '/sessions', (value) => `{"title": ${value}}`],
    ['PATCH', '/sessions/:id', (value) => `{"title": ${value}}`],
    ['POST', '/messages/abort', (value) => `{"sessionId": ${value}}`],
    ['POST', '/delegation', (value) => `{"raw": ${value}}`],
    ['POST', '/delegation', (value) => `{"raw": "x", "issuer": ${value}}`],
    ['POST', '/messages/:id', (value) => `{"message": ${value}}`],
    ...['timezone', 'homeServer', 'model', 'requestId', 'multitask', 'attachments', 'stream'].map(
      (field) => inMessage(field),
    ),
    inMessage('metadata'),
    inMessage('metadata', (value) => `{"a": ${deep(40)}, "b": ${value}}`),
    inMessage('tools', (value) => `[${tool(value)}]`),
    inMessage('agActions', (value) => `[${tool(value)}]`),
    inMessage('mcpInvocations', (value) => `{"a": ${value}}`),
    inMessage('attachments', (value) => `[{"mxcUri": "mxc://a/b", "filename": ${value}}]`),
  ];

  it.each(bodies)('of %s %s is validated, however long or deep', async (method, path, make) => {
    const at = path.replace(':id', await openSession(alice));
    for (const value of [long, deep(10_000), deep(200_000), '1e999', '-1', 'null']) {
      // A title that is null is none.
      if (value === 'null' && method === 'POST' && path === '/sessions') continue;
      const { status, body } = await post(method, at, make(value));
      expect([400, 404, 413], `${value.slice(0, 20)}: ${body.slice(0, 200)}`).toContain(status);
      expect(body.length).toBeLessThan(10_000);
    }
  });

  it.each([
    [
      '/sessions?limit',
      ['0', '101', '-1', '1.5', '1e1', '0x5', '%205', '%2B5', 'NaN', 'Infinity', '', '1&limit=2'],
    ],
    [
      '/sessions?offset',
      ['-1', '1e400', '1e1', '0x5', '%205', '+5', '', '9007199254740992', 'null', '1&offset=2'],
    ],
    ['/memory?limit', ['0', '101', '0x5', '1e1', '']],
    ['/runs/x?after', ['-1', '0x5', '1e1', '%2B5', '']],
  ])('or a query is validated: GET %s', async (address, values) => {
    for (const value of values) {
      const { status, body } = await alice.request('GET', `${address}=${value}`);
      expect([value, status]).toEqual([value, 400]);
      expect(body.message).toEqual([
        expect.stringMatching(/: must be a whole number( from \d+ to \d+|, 0 or more)$/),
      ]);
    }
  });

  it('with very many unknown fields gets an error that names some', async () => {
    const fields = Array.from({ length: 4_900 }, (_, i) => `"k${i}": 1`).join(', ');
    const { status, body } = await post('POST', '/sessions', `{${fields}}`);
    expect([status, JSON.parse(body).message.at(-1)]).toEqual([400, 'and 4880 more']);
    expect(body.length).toBeLessThan(10_000);
  });

  const entries = (count: number) => `[${Array(count).fill('{}').join(',')}]`;
  const names = (count: number) => Array.from({ length: count }, (_, i) => `"k${i}": 0`).join();
  const some = `[${Array(200)
    .fill(`{"id": "a", "role": "user", "content": ${entries(100)}, "parts": ${entries(100)}}`)
    .join(',')}]`;

  it.each([
    ['/v2/agent/run', `"messages": ${some}`],
    ['/v2/agent/run', `"messages": ${entries(9_000)}`],
    ['/v2/agent/run', `"messages": ${entries(90_000)}`],
    ['/v2/agent/run', `"tools": ${entries(900)}`],
    ['/ui/chat', `"messages": ${some}`],
    ['/ui/chat', `"messages": ${entries(90_000)}`],
    ['/v1/chat/completions', `"messages": ${some}`],
    ['/v1/responses', `"model": "x", "input": ${some}`],
    ['/messages/x', `"message": "x", "mcpInvocations": {${names(19_000)}}`],
  ])('with very many invalid entries is checked up to the first ones: %s', async (path, field) => {
    const { status, body } = await post('POST', path, `{${field}}`);
    expect(status).toBe(400);
    expect(Number(/and (\d+) more/.exec(body)?.[1] ?? 0)).toBeLessThan(2_000);
  });

  it('with very many MCP messages that are invalid is checked up to the first ones', async () => {
    const { status, body } = await post('POST', '/mcp', `[${Array(90_000).fill('0').join(',')}]`);
    expect([status, body]).toEqual([400, expect.stringContaining('<=1000 items')]);
  });
});
