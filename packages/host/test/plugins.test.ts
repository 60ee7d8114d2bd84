import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Body, Controller, Get, HttpCode, Inject, Module, Post } from '@nestjs/common';
import { createOracleApp, diagnosePlugins, type OracleAppOptions } from '@sibyl/host';
import { type Caller, CurrentCaller, Describe, RawBody } from '@sibyl/plugin-kit';
import { PluginList } from '@sibyl/protocol';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { startHost, type TestHost } from './support/host.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

const GREETING = Symbol('greeting');
const Greeting = z.object({ greeting: z.string(), did: z.string() }).meta({ id: 'Greeting' });

@Controller('greetings')
class GreetingsController {
  constructor(@Inject(GREETING) private readonly greeting: string) {}

  @Get()
  @Describe({ summary: 'Greets the caller', reply: Greeting })
  greet(@CurrentCaller() { did }: Caller) {
    return { greeting: this.greeting, did };
  }

  @Post('hook')
  @HttpCode(200)
  @Describe({ summary: 'Takes a delivery' })
  hook(@Body() body: object, @RawBody() raw: Buffer) {
    return { body, raw: raw.toString() };
  }
}

@Module({})
class GreetingsModule {}

const greetings = testPlugin('greetings', {
  manifest: {
    title: 'Greetings',
    summary: 'Greets people',
    whenToUse: ['a user arrives'],
    examples: ['Good morning!'],
    category: 'social',
  },
  configSchema: z.object({ GREETING: z.string().default('Hello').describe('What to say') }),
  getNestModules: ({ config }) => [
    {
      module: GreetingsModule,
      controllers: [GreetingsController],
      providers: [{ provide: GREETING, useValue: config.GREETING }],
    },
  ],
  getAuthExcludedRoutes: () => ['greetings/hook'],
});
const shadow = testPlugin('shadow', {
  manifest: { ...testPlugin('shadow', {}).manifest, visibility: 'silent' },
});
const absent = testPlugin('absent', { autoDetect: () => false, autoDetectHint: 'set ABSENT_KEY' });

/** What the plugin asks its users for. */
const PERMISSION = { can: 'letter/send', title: 'Send letters', reason: 'To greet by mail' };

describe('createOracleApp with plugins', () => {
  let host: TestHost;
  let alice: TestUser;
  beforeAll(async () => {
    host = await startHost({
      bundled: [],
      plugins: [greetings, shadow, absent],
      manifestOverrides: { greetings: { title: 'Welcome', permissions: [PERMISSION] } },
      env: { GREETING: 'Jambo' },
    });
    alice = new TestUser(host);
  });
  afterAll(() => host.close());

  it('GET /plugins lists plugins that are not silent', async () => {
    const response = await fetch(`${host.url}/plugins`);
    expect(PluginList.parse(await response.json())).toEqual({
      plugins: [
        {
          name: 'greetings',
          title: 'Welcome',
          summary: 'Greets people',
          category: 'social',
          visibility: 'on-demand',
          stability: 'stable',
          // The offline model cannot answer it.
          examples: [],
          tags: [],
          permissions: [{ ...PERMISSION, with: '{user}' }],
        },
      ],
    });
  });

  it('app.plugins.status lists which plugins are loaded, and why others are not', () => {
    expect(host.app.plugins.status()).toEqual([
      { name: 'greetings', version: '1.0.0', isLoaded: true },
      { name: 'shadow', version: '1.0.0', isLoaded: true },
      { name: 'absent', version: '1.0.0', isLoaded: false, reason: 'set ABSENT_KEY' },
    ]);
    expect(host.log.map(({ msg }) => msg)).toContain(
      'plugins: greetings, shadow; not loaded: absent (set ABSENT_KEY)',
    );
  });

  it('protects routes of plugins unless they are public', async () => {
    expect((await fetch(`${host.url}/greetings`)).status).toBe(401);
    expect((await alice.request('GET', '/greetings')).body).toEqual({
      greeting: 'Jambo',
      did: alice.did,
    });
  });

  it('passes the raw body to routes of plugins', async () => {
    const sent = '{"a": 1 }';
    const response = await fetch(`${host.url}/greetings/hook`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: sent,
    });
    expect(await response.json()).toEqual({ body: { a: 1 }, raw: sent });
  });

  it('GET /docs/openapi.json describes routes of plugins', async () => {
    const { paths, components } = await (await fetch(`${host.url}/docs/openapi.json`)).json();
    expect(paths['/greetings'].get).toMatchObject({
      summary: 'Greets the caller',
      security: [{ invocation: [] }, { delegation: [] }],
    });
    expect(paths['/greetings/hook'].post.security).toEqual([]);
    expect(Object.keys(components.schemas)).toContain('Greeting');
  });
});

describe('createOracleApp that fails', () => {
  const boot = async (options: OracleAppOptions) => {
    const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-boot-'));
    const env = { DATA_DIR: dataDir, ...options.env };
    const failure = await createOracleApp({ logger: pino({ level: 'silent' }), ...options, env })
      .then((app) => app.close())
      .catch((error: Error) => error);
    await rm(dataDir, { recursive: true });
    return failure;
  };

  it('reports all issues of the host and of the plugins together', async () => {
    const failure = await boot({
      env: { PORT: 'eighty', FEATURES: 'unknown=true' },
      plugins: [
        testPlugin('needy', { configSchema: z.object({ NEEDY_KEY: z.string() }) }),
        testPlugin('lonely', { dependsOn: ['ghost'] }),
      ],
    });
    expect(String(failure)).toMatch(/4 things are wrong/);
    for (const text of [
      'PORT (host)',
      'NEEDY_KEY (plugin needy)',
      'plugin lonely',
      'plugin unknown',
    ])
      expect(String(failure)).toContain(text);
  });

  it('FEATURES takes precedence over the options', async () => {
    const broken = testPlugin('broken', { dependsOn: ['ghost'] });
    const options = { plugins: [broken], features: { broken: true } };
    expect(String(await boot(options))).toContain('ghost');
    expect(await boot({ ...options, env: { FEATURES: 'broken=false' } })).toBeUndefined();
  });

  it('names the plugin whose Nest module cannot be built', async () => {
    @Controller('needy')
    class NeedyController {
      constructor(@Inject('nothing') readonly nothing: unknown) {}
    }
    class NeedyModule {}
    const needy = testPlugin('needy', {
      getNestModules: () => [{ module: NeedyModule, controllers: [NeedyController] }],
    });
    expect(String(await boot({ plugins: [needy] }))).toMatch(
      /plugin needy: its Nest modules could not be built: .*NeedyModule/,
    );
  });

  it('names the plugin whose hook throws', async () => {
    const failing = testPlugin('failing', {
      getNestModules: () => Promise.reject(new Error('no modules today')),
    });
    expect(String(await boot({ plugins: [failing] }))).toContain(
      'plugin failing: getNestModules failed: no modules today',
    );
  });
});

it('diagnosePlugins reports a check that hangs, and what the others found', async () => {
  vi.useFakeTimers();
  const shop = { name: 'Shop', ok: true, text: 'open' };
  const plugins = [
    testPlugin('hangs', { diagnose: () => new Promise<never>(() => undefined) }),
    testPlugin('works', { diagnose: () => [shop] }),
  ];
  const found = diagnosePlugins({ plugins, env: {} });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(await found).toEqual([
    expect.objectContaining({ name: 'hangs', ok: false, text: expect.stringContaining('in time') }),
    shop,
  ]);
});
