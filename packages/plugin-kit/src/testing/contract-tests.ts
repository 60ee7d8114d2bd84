import assert from 'node:assert/strict';
import { OracleError } from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import { checkPluginName } from '../host/hook-checks.js';
import { getTablePrefix } from '../host/own-tables.js';
import { PublicRoutes } from '../host/route-module.js';
import { PluginManifest } from '../manifest.js';
import type { OraclePlugin } from '../plugin.js';
import { isStandardSchema, toJsonSchema } from '../schema.js';
import type { Tool } from '../tool.js';
import type { TestRoute } from './test-app.js';
import { TEST_USER, type TestRuntimeOptions } from './test-host.js';
import { createTestRuntime, type TestRuntime } from './test-runtime.js';
import { type TestTurnOptions, validateInput } from './test-turn.js';

/** The tests that every plugin must pass, for any runner: `it.each(contractTests(plugin))('$name', ({ run }) => run())`. */
export function contractTests(plugin: OraclePlugin, options: ContractOptions = {}): ContractTest[] {
  const { dependencies = [], ...rest } = options;
  const use: Subject['use'] = async (check) => {
    const runtime = await createTestRuntime({ ...rest, plugins: [...dependencies, plugin] });
    try {
      await check(runtime);
    } finally {
      await runtime.close();
    }
  };
  const subject: Subject = { plugin, options, use };
  const groups = [identityTests, hookTests, tableTests, toolTests, routeTests];
  return groups.flatMap((tests) => tests(subject));
}

/** One requirement of the plugin contract. */
export interface ContractTest {
  readonly name: string;
  /** Rejects if the plugin does not meet it. */
  readonly run: () => Promise<void>;
}

export interface ContractOptions extends Omit<TestRuntimeOptions, 'plugins'> {
  /** The plugins it depends on. */
  readonly dependencies?: readonly OraclePlugin[];
}

/** The plugin under test. */
export interface Subject {
  readonly plugin: OraclePlugin;
  readonly options: ContractOptions;
  /** Sets the plugin up for a check, and closes it afterwards. */
  use(check: (runtime: TestRuntime) => Promise<void>): Promise<void>;
}

const VARIABLE = /^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$/;
const VERSION = /^\d+\.\d+\.\d+/;

const identityTests = ({ plugin }: Subject): ContractTest[] => [
  {
    name: 'has a name, a version and a manifest that a host accepts',
    run: async () => {
      assert.equal(checkPluginName(plugin.name)?.problem, undefined);
      assert.match(plugin.version, VERSION);
      const manifest = PluginManifest.parse(plugin.manifest);
      const isKnown = manifest.visibility !== 'silent';
      if (isKnown) assert.ok(manifest.whenToUse.length > 0, 'whenToUse is empty');
    },
  },
  {
    name: 'depends on plugins by name, and not on itself',
    run: async () => {
      for (const name of [...(plugin.dependsOn ?? []), ...(plugin.softDependsOn ?? [])]) {
        assert.equal(checkPluginName(name)?.problem, undefined, name);
        assert.notEqual(name, plugin.name);
      }
    },
  },
  {
    name: 'describes each of its variables',
    run: async () => {
      for (const [name, schema] of Object.entries(plugin.configSchema?.shape ?? {})) {
        assert.match(name, VARIABLE);
        assert.ok(schema.description, `${name} has no description`);
      }
    },
  },
  {
    name: 'autoDetect returns a boolean for every environment and has a hint',
    run: async () => {
      if (!plugin.autoDetect) return;
      const names = Object.keys(plugin.configSchema?.shape ?? {});
      const odd = ['', ' ', 'true', 'false', '\u0000', '{', 'x'.repeat(10_000)];
      const environments = odd.map((value) => Object.fromEntries(names.map((n) => [n, value])));
      for (const env of [{}, ...environments])
        assert.equal(typeof plugin.autoDetect(env), 'boolean');
      assert.ok(plugin.autoDetectHint, 'autoDetectHint is missing');
    },
  },
];

const ODD_REQUESTS = [
  { system: '', messages: [], tools: [] },
  { agent: 'unknown', messages: [{ role: 'user' as const, content: [] }] },
  { messages: [{ role: 'tool' as const, results: [] }] },
];

const hookTests = ({ plugin, use }: Subject): ContractTest[] => [
  {
    name: 'setup and close succeed',
    run: () =>
      withTimeLimit(
        'setup',
        use(async () => undefined),
      ),
  },
  {
    name: 'can be set up twice in one process',
    run: () => use(() => use(async () => undefined)),
  },
  {
    name: 'reads its variables from the context, not from process.env',
    run: async () => {
      const names = Object.keys(plugin.configSchema?.shape ?? {});
      const read = await watchEnvironment(names, () =>
        use(async (runtime) => void (await runtime.turn())),
      );
      assert.deepEqual(read, []);
    },
  },
  {
    name: 'starts a turn with hostile metadata, attachments and tools',
    run: () =>
      use(async (runtime) => {
        for (const parts of hostileTurns) await withTimeLimit('a turn', runtime.turn(parts));
      }),
  },
  {
    name: 'wrapModel accepts unusual requests, or refuses with an OracleError',
    run: () =>
      use(async (runtime) => {
        const turn = await runtime.turn();
        for (const request of ODD_REQUESTS)
          await withTimeLimit('wrapModel', turn.callModel(request)).catch(assertRefusal);
        assert.deepEqual(turn.invalidEvents, []);
      }),
  },
  {
    name: 'the message gate admits a message, or refuses with an OracleError',
    run: () =>
      use(async (runtime) => {
        const holds = await withTimeLimit('the gate', runtime.admit()).catch(assertRefusal);
        for (const hold of holds ?? []) await withTimeLimit('settle', hold.settle([]));
      }),
  },
];

function assertRefusal(error: unknown): undefined {
  if (!(error instanceof OracleError)) throw error;
  return undefined;
}

const tableTests = ({ plugin, use }: Subject): ContractTest[] => [
  {
    name: 'has tables with an owner and a primary key, so that users can export and erase their rows',
    run: () =>
      use(async (runtime) => {
        const tables = await runtime.tables();
        for (const { name, columns, key } of tables) {
          if (!name.startsWith(getTablePrefix(plugin.name))) continue;
          assert.ok(columns.includes('owner'), `${name} has no column owner, for the user's DID`);
          assert.ok(key.length > 0, `${name} has no primary key`);
        }
      }),
  },
];

const SHORTEST_DESCRIPTION = 20;

const toolTests = ({ use }: Subject): ContractTest[] => [
  {
    name: 'has tools with unique names and useful descriptions',
    run: () =>
      use(async (runtime) => {
        const { tools } = await runtime.turn();
        const names = tools.map(({ name }) => name);
        assert.deepEqual(names, [...new Set(names)]);
        for (const { name, description } of tools)
          assert.ok(
            description.length >= SHORTEST_DESCRIPTION,
            `the description of ${name} is too short`,
          );
      }),
  },
  {
    name: 'has tools whose input schema describes an object',
    run: () =>
      use(async (runtime) => {
        for (const tool of (await runtime.turn()).tools) {
          const schema = readJsonSchema(tool);
          assert.equal(schema.type, 'object', `the input of ${tool.name} is not an object`);
        }
      }),
  },
  {
    name: 'has tools that return JSON or throw an Error for hostile input',
    run: () =>
      use(async (runtime) => {
        const turn = await runtime.turn();
        for (const tool of turn.tools)
          for (const input of hostileInputs(listFields(tool))) {
            if (!(await isValid(tool, input))) continue;
            const call = turn.callTool(tool.name, input);
            await withTimeLimit(tool.name, call).catch((error) =>
              assert.ok(error instanceof Error),
            );
          }
        assert.deepEqual(turn.invalidEvents, []);
        assert.equal(Object.hasOwn(Object.prototype, 'isAdmin'), false);
      }),
  },
];

type JsonSchema = Readonly<Record<string, unknown>>;

function readJsonSchema({ inputSchema }: Tool): JsonSchema {
  if (!isStandardSchema(inputSchema)) return inputSchema;
  const schema = toJsonSchema(inputSchema);
  // A schema with an id is written as a reference to itself.
  const name = typeof schema.$ref === 'string' ? schema.$ref.split('/').at(-1) : undefined;
  const definitions = (schema.definitions ?? schema.$defs) as
    | Record<string, JsonSchema>
    | undefined;
  return name ? (definitions?.[name] ?? {}) : schema;
}

function listFields(tool: Tool): string[] {
  const { properties } = readJsonSchema(tool);
  return typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
}

async function isValid(tool: Tool, input: unknown): Promise<boolean> {
  try {
    await validateInput(tool, input);
    return true;
  } catch {
    return false;
  }
}

const routeTests = ({ plugin, use }: Subject): ContractTest[] => [
  {
    name: 'opens only routes that exist',
    run: () =>
      use(async (runtime) => {
        const routes = await runtime.routes();
        for (const opened of plugin.getAuthExcludedRoutes?.() ?? []) {
          const one = new PublicRoutes([opened]);
          const isThere = routes.some(({ method, path }) => one.includes(method, path));
          assert.ok(
            isThere,
            `getAuthExcludedRoutes names ${JSON.stringify(opened)}, which does not exist`,
          );
        }
      }),
  },
  {
    name: 'rejects anonymous requests to routes that are not public',
    run: () =>
      use(async (runtime) => {
        for (const { method, path, isPublic } of await runtime.routes()) {
          if (isPublic) continue;
          const { status } = await runtime.request(method, filled(path, 'x'));
          assert.equal(status, 401, `${method} ${path}`);
        }
      }),
  },
  {
    name: 'describes its routes',
    run: () =>
      use(async (runtime) => {
        for (const { method, path, description } of await runtime.routes())
          assert.ok(description?.summary, `${method} ${path} is not described`);
      }),
  },
  {
    name: 'answers hostile requests with a status below 500, errors as JSON',
    run: () =>
      use(async (runtime) => {
        for (const route of await runtime.routes()) await assertRobust(runtime, route);
      }),
  },
];

const filled = (path: string, segment: string) =>
  path.replaceAll(/:\w+/g, segment).replaceAll(/[{/]?\*\w+\}?/g, `/${segment}`);

async function assertRobust(runtime: TestRuntime, { method, path }: TestRoute): Promise<void> {
  const bodies = ['GET', 'HEAD', 'DELETE'].includes(method) ? [undefined] : oddBodies;
  for (const segment of path.includes(':') ? oddSegments : ['x'])
    for (const body of bodies) {
      const parts = { caller: TEST_USER, ...(body !== undefined && { body }) };
      const {
        status,
        headers,
        body: answer,
      } = await runtime.request(method, filled(path, segment), parts);
      const where = `${method} ${filled(path, segment)} with ${body}`;
      assert.ok(status < 500, `${where} answered ${status}: ${JSON.stringify(answer)}`);
      // A page for people may answer with HTML.
      const isReadable = /json|text\/html/.test(headers.get('content-type') ?? '');
      if (status >= 400) assert.ok(isReadable, `${where} answered ${status} without JSON`);
    }
}

const LONG = 'x'.repeat(50_000);
const ODD_TEXTS = ['', ' ', '\u0000', LONG, '../../etc/passwd', "'; drop table x; --", '\ud800'];
const ODD_VALUES: readonly unknown[] = [...ODD_TEXTS, null, -1, 1e308, true, [], {}, [[]]];

/** Unusual inputs, some with the fields of the tool. */
function hostileInputs(fields: readonly string[]): unknown[] {
  const polluting = JSON.parse('{"__proto__": {"isAdmin": true}, "constructor": 1}');
  const filled = ODD_VALUES.map((value) => Object.fromEntries(fields.map((f) => [f, value])));
  return [...ODD_VALUES, polluting, ...filled];
}

/** Unusual path parameters. */
const oddSegments: readonly string[] = [
  'unknown',
  '%00',
  '..%2f..%2fetc%2fpasswd',
  encodeURIComponent("' or 1=1 --"),
  encodeURIComponent('💥'),
  'x'.repeat(2000),
];

/** Unusual bodies. */
const oddBodies: readonly string[] = [
  '',
  '{',
  'null',
  '[]',
  '"text"',
  '{"__proto__":{"isAdmin":true}}',
  JSON.stringify({ text: LONG.slice(0, 20_000) }),
  `${'['.repeat(500)}${']'.repeat(500)}`,
];

/** Turns of a careless or hostile client. */
const hostileTurns: readonly TestTurnOptions[] = [
  {},
  { metadata: { editorRoomId: 7, spaceId: null, ['__proto__']: {}, deep: { a: [{}] } } },
  { user: 'did:key:zUnknown', timezone: 'Nowhere/Land', client: 'unheard-of', roomId: '' },
  { matrix: { homeServer: 'not a url', accessToken: LONG } },
  { mcpInvocations: { constructor: 'x', a__b: 'not base64 §', '': '' } },
  {
    attachments: [
      { mxcUri: 'mxc://nowhere.invalid/x', filename: '../../x', mimetype: 'application/pdf' },
      { eventId: '$nothing', filename: LONG.slice(0, 255), mimetype: 'x/y' },
    ],
  },
  {
    tools: [
      { name: 'odd', description: '', schema: {} },
      { name: 'odd', description: LONG, schema: { type: 'array', $ref: '#/nowhere' } },
    ],
    agActions: [{ name: 'odd', description: '', schema: { properties: 5 } }],
  },
];

const TIMEOUT_MS = 20_000;

const withTimeLimit = <T>(what: string, work: Promise<T>): Promise<T> =>
  withTimeout(
    { ms: TIMEOUT_MS, message: `${what} took longer than ${TIMEOUT_MS / 1000} s` },
    () => work,
  );

/** Runs work and returns the names of the variables that it read from process.env. */
async function watchEnvironment(
  names: readonly string[],
  work: () => Promise<void>,
): Promise<string[]> {
  const read = new Set<string>();
  const watched = new Set(names);
  // biome-ignore lint/style/noProcessEnv: this is where reads are recorded.
  const own = process.env;
  const record = (name: string | symbol) => {
    if (typeof name === 'string' && watched.has(name)) read.add(name);
  };
  const handler: ProxyHandler<NodeJS.ProcessEnv> = {
    get: (env, name) => {
      record(name);
      return Reflect.get(env, name);
    },
    has: (env, name) => {
      record(name);
      return Reflect.has(env, name);
    },
  };
  process.env = new Proxy(own, handler);
  try {
    await work();
  } finally {
    process.env = own;
  }
  return [...read];
}
