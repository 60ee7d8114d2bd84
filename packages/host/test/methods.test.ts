import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { Controller, Get, Module, Param, Post } from '@nestjs/common';
import { ErrorBody } from '@sibyl/protocol';
import { describe, expect, it, onTestFinished } from 'vitest';
import { useControlledHost } from './support/controlled-host.js';
import { startHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { openSession, stream } from './support/stream.js';

@Controller('parcels')
class ParcelsController {
  @Get(':id/label')
  label(@Param('id') id: string) {
    return { id };
  }

  @Post(':id/label')
  print(@Param('id') id: string) {
    return { id };
  }
}

@Module({ controllers: [ParcelsController] })
class ParcelsModule {}

const parcels = testPlugin('parcels', { getNestModules: () => [ParcelsModule] });

const controlled = useControlledHost({ plugins: [parcels] });

const ask = (method: string, path: string, headers: Record<string, string> = {}) =>
  fetch(controlled.host.url + path, { method, headers });

/** Every path of the running host with the methods of its routes, those of the docs included. */
function routesByPath(): [path: string, methods: string[]][] {
  const { router } = controlled.host.app.nest.getHttpAdapter().getInstance();
  const layers = router.stack as unknown as {
    route?: { path: string | string[]; methods: object };
  }[];
  const routes = layers.flatMap(({ route }) =>
    [route?.path ?? []].flat().map((path) => ({
      path: path.replaceAll(/[:*]\w+/g, 'x'),
      methods: Object.keys(route?.methods ?? {}).map((method) => method.toUpperCase()),
    })),
  );
  const byPath = Map.groupBy(routes, ({ path }) => path);
  return [...byPath].map(([path, same]) => [path, same.flatMap(({ methods }) => methods)]);
}

/** Surfaces whose clients read the errors of their protocol. */
const HAS_OWN_ERRORS = /^\/(v1\/|mcp$|a2a|ui\/|\.well-known\/agent-card)/;

const toOpenAi = (code: string) => ({ error: expect.objectContaining({ code }) });
const foreignErrors: readonly (readonly [path: string, toError: (code: string) => unknown])[] = [
  ['/v1/models', toOpenAi],
  ['/v1/chat/completions', toOpenAi],
  ['/v1/responses', toOpenAi],
  [
    '/mcp',
    (code) => ({ jsonrpc: '2.0', id: null, error: expect.objectContaining({ data: { code } }) }),
  ],
  [
    '/a2a',
    (code) => ({
      jsonrpc: '2.0',
      id: null,
      error: expect.objectContaining({
        data: [expect.objectContaining({ reason: code.toUpperCase() })],
      }),
    }),
  ],
  ['/ui/chat', () => expect.any(String)],
];

const readBody = (response: Response): Promise<unknown> =>
  response.headers.get('content-type')?.includes('json') ? response.json() : response.text();

describe('an unknown method', () => {
  it('answers 405 with Allow on every path of the host and its plugins, without credentials', async () => {
    const paths = routesByPath();
    expect(paths.map(([path]) => path)).toEqual(
      expect.arrayContaining(['/sessions', '/docs/openapi.json', '/parcels/x/label', '/app/x']),
    );
    for (const [path, methods] of paths) {
      const other = ['PUT', 'DELETE', 'PATCH'].find((method) => !methods.includes(method)) ?? '';
      const response = await ask(other, path);
      const allowed = response.headers.get('allow')?.split(', ') ?? [];
      expect([path, response.status, allowed.includes(other)]).toEqual([path, 405, false]);
      expect(allowed).toEqual(expect.arrayContaining([...methods, 'OPTIONS']));
      expect(allowed.includes('HEAD')).toBe(allowed.includes('GET'));
      const body = await response.text();
      expect(body).toContain(`${other} is not allowed here`);
      if (HAS_OWN_ERRORS.test(path)) continue;
      expect(ErrorBody.parse(JSON.parse(body))).toMatchObject({
        statusCode: 405,
        code: 'method_not_allowed',
        requestId: response.headers.get('x-request-id'),
      });
    }
  });

  it.each(foreignErrors)(
    'is refused as clients of the surface expect: %s',
    async (path, toError) => {
      const response = await ask('PATCH', path);
      expect([response.status, response.headers.get('allow')]).toEqual([
        405,
        expect.stringContaining('OPTIONS'),
      ]);
      expect(await readBody(response)).toEqual(toError('method_not_allowed'));
    },
  );

  it.each([
    ['PUT', '/sessions', 'GET, HEAD, OPTIONS, POST'],
    ['POST', '/sessions/x', 'DELETE, OPTIONS, PATCH'],
    ['DELETE', '/SESSIONS/', 'GET, HEAD, OPTIONS, POST'],
    ['PATCH', '/messages/abort', 'OPTIONS, POST'],
    ['POST', '/docs', 'GET, HEAD, OPTIONS'],
    ['PATCH', '/parcels/7/label', 'GET, HEAD, OPTIONS, POST'],
  ])('gets the allowed methods: %s %s', async (method, path, allow) => {
    const { status, headers } = await ask(method, path);
    expect([status, headers.get('allow')]).toEqual([405, allow]);
  });

  it.each(['/nowhere', '/sessions/x/y/z', '/docs/package.json', '/parcels', '/sessions/%'])(
    'answers 404 or 400 without Allow on an unknown path: PUT %s',
    async (path) => {
      const { status, headers } = await ask('PUT', path);
      expect([400, 404]).toContain(status);
      expect(headers.get('allow')).toBeNull();
    },
  );

  it('is readable by a page of another origin', async () => {
    const { status, headers } = await ask('PUT', '/sessions', { origin: 'https://a.example' });
    expect([status, headers.get('access-control-allow-origin')]).toEqual([405, '*']);
  });
});

it('RATE_LIMIT_ANONYMOUS_PER_MINUTE refuses as clients of the surface expect', async () => {
  const host = await startHost({ env: { RATE_LIMIT_ANONYMOUS_PER_MINUTE: '1' } });
  onTestFinished(() => host.close());
  await fetch(host.url);
  for (const [path, toError] of foreignErrors) {
    const response = await fetch(host.url + path, { method: 'POST' });
    expect([path, response.status, response.headers.has('retry-after')]).toEqual([path, 429, true]);
    expect(await readBody(response)).toEqual(toError('rate_limited'));
  }
});

describe('OPTIONS', () => {
  it('lists the methods of a known path and answers 404 elsewhere', async () => {
    const known = await ask('OPTIONS', '/sessions');
    expect([known.status, known.headers.get('allow')]).toEqual([204, 'GET, HEAD, OPTIONS, POST']);
    expect((await ask('OPTIONS', '/nowhere')).status).toBe(404);
  });

  it('answers the preflight of every path', async () => {
    const headers = { origin: 'https://a.example', 'access-control-request-method': 'PUT' };
    for (const path of ['/sessions', '/nowhere']) {
      const response = await ask('OPTIONS', path, headers);
      expect(response.status).toBe(204);
      expect(response.headers.get('access-control-allow-methods')).toContain('PUT');
    }
  });
});

/** Sends HEAD and waits until the host has ended its answer, which `fetch` does not do. */
async function readHead(path: string, headers: Record<string, string>): Promise<string> {
  const { port, hostname } = new URL(controlled.host.url);
  const socket = connect(Number(port), hostname);
  const lines = Object.entries({ host: 'x', connection: 'close', ...headers });
  const head = [`HEAD ${path} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`)];
  socket.write(`${head.join('\r\n')}\r\n\r\n`);
  return text(socket);
}

describe('HEAD', () => {
  it.each(['/', '/health', '/docs', '/docs/openapi.json', '/app/', '/sessions', '/nowhere'])(
    'answers %s as GET does, without a body',
    async (path) => {
      const [head, get] = await Promise.all([ask('HEAD', path), ask('GET', path)]);
      expect(head.status).toBe(get.status);
      expect(head.headers.get('content-type')).toBe(get.headers.get('content-type'));
      expect(await head.text()).toBe('');
    },
  );

  it('of GET /runs/:runId and GET /messages/:sessionId does not wait for the turn', async () => {
    const { alice, model } = controlled;
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'hello' });
    const turn = await model.next();
    for (const path of [`/runs/${live.runId}`, `/messages/${sessionId}`])
      expect(await readHead(path, alice.headers)).toMatch(/^HTTP\/1\.1 200 /);
    turn.answer('done');
    await live.toEnd();
  });
});
