import { Controller, Get, Module, Param } from '@nestjs/common';
import { DidDocument } from '@sibyl/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';

@Controller('webhook')
class WebhookController {
  @Get('open')
  open() {
    return { open: true };
  }

  @Get('files/:name')
  file(@Param('name') name: string) {
    return { name };
  }

  @Get('closed')
  closed() {
    return { closed: true };
  }
}

@Module({ controllers: [WebhookController] })
class WebhookModule {}

const webhook = testPlugin('webhook', {
  getNestModules: () => [WebhookModule],
  getAuthExcludedRoutes: () => ['/webhook/open'],
});

let host: TestHost;
beforeAll(async () => {
  host = await startHost({
    bundled: [],
    plugins: [webhook],
    authExcludedRoutes: ['webhook/files/(.*)'],
  });
});
afterAll(() => host.close());

interface Route {
  readonly method: string;
  readonly path: string;
}

/** Every route the running router knows. */
function listRoutes({ app }: TestHost): Route[] {
  const { router } = app.nest.getHttpAdapter().getInstance();
  const layers = router.stack as unknown as { route?: { path: string; methods: object } }[];
  return layers.flatMap(({ route }) =>
    route ? Object.keys(route.methods).map((method) => ({ method, path: route.path })) : [],
  );
}

const ask = ({ method, path }: Route, headers: Record<string, string> = {}): Promise<Response> =>
  fetch(host.url + path.replaceAll(/:\w+/g, 'x').replaceAll(/\*\w+/g, 'x'), {
    method: method.toUpperCase(),
    headers,
  });

const garbage = {
  authorization: 'Bearer garbage',
  'x-auth-type': 'ucan',
  'x-ucan-delegation': 'garbage',
  'x-did': 'did:key:unknown',
};

describe('UcanGuard without a UCAN', () => {
  it('allows only public routes', async () => {
    const open = [];
    for (const route of listRoutes(host))
      if ((await ask(route)).status !== 401) open.push(`${route.method} ${route.path}`);
    expect(open.filter((route) => !route.startsWith('get /docs'))).toEqual([
      'get /',
      'get /health',
      'get /health/ready',
      'get /.well-known/oracle.json',
      'get /.well-known/did.json',
      'get /models',
      'get /plugins',
      'get /webhook/open',
      'get /webhook/files/:name',
    ]);
  });

  it.each(['/', '/health', '/docs', '/docs/openapi.json', '/.well-known/oracle.json'])(
    '%s ignores garbage in the auth headers',
    async (path) => {
      expect((await ask({ method: 'get', path }, garbage)).status).toBe(200);
    },
  );

  it.each(['/webhook/open/', '/WEBHOOK/open', '/webhook/closed', '//webhook/open/../closed'])(
    'a spelling of an opened path does not open another: %s',
    async (path) => {
      const { status } = await ask({ method: 'get', path });
      expect([200, 401, 404]).toContain(status);
      if (path.includes('closed')) expect(status).not.toBe(200);
    },
  );
});

it('GET / returns the name and status', async () => {
  expect(await (await ask({ method: 'get', path: '/' })).json()).toEqual({
    status: 'ok',
    message: expect.stringContaining('/docs'),
    timestamp: expect.stringMatching(/^\d{4}-.*Z$/),
  });
  expect(await (await ask({ method: 'get', path: '/health' })).json()).toEqual({
    status: 'ok',
    timestamp: expect.any(String),
  });
});

it('GET /.well-known/oracle.json returns the DID of the oracle', async () => {
  const card = await (await ask({ method: 'get', path: '/.well-known/oracle.json' })).json();
  expect(card).toEqual({
    did: host.did,
    name: 'Sibyl',
    version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
    features: ['webhook', 'files'],
  });
});

it('GET /.well-known/did.json exists only for a did:web', async () => {
  expect((await ask({ method: 'get', path: '/.well-known/did.json' })).status).toBe(404);
  const web = await startHost({ env: { ORACLE_DID: 'did:web:oracle.example' } });
  const document = DidDocument.parse(await (await fetch(`${web.url}/.well-known/did.json`)).json());
  await web.close();
  expect(document.id).toBe('did:web:oracle.example');
  expect(document.verificationMethod[0]?.publicKeyMultibase).toMatch(/^z6Mk/);
});
