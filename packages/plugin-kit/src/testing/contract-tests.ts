import assert from 'node:assert/strict';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';
import { PluginManifest } from '../manifest.js';
import type { OraclePlugin } from '../plugin.js';
import { nameFault } from '../rules/plugin-setup.js';
import { PublicRoutes } from '../rules/route-rules.js';
import type { Tool } from '../tool.js';
import type { TestRoute } from './test-app.js';
import { TEST_USER, type TestRuntimeOptions } from './test-host.js';
import { createTestRuntime, type TestRuntime } from './test-runtime.js';
import { checkInput, type TurnParts } from './test-turn.js';

/** What the contract asks of a plugin, as tests for any runner: `it.each(contractTests(plugin))('$name', ({ run }) => run())`. */
export function contractTests(plugin: OraclePlugin, options: ContractOptions = {}): ContractTest[] {
  const { dependencies = [], ...rest } = options;
  const use: Trial['use'] = async (check) => {
    const runtime = await createTestRuntime({ ...rest, plugins: [...dependencies, plugin] });
    try {
      await check(runtime);
    } finally {
      await runtime.close();
    }
  };
  const trial: Trial = { plugin, options, use };
  return [identityTests, hookTests, toolTests, routeTests].flatMap((tests) => tests(trial));
}

/** One thing the contract asks of every plugin. */
export interface ContractTest {
  readonly name: string;
  /** Rejects if the plugin does not keep to it. */
  readonly run: () => Promise<void>;
}

export interface ContractOptions extends Omit<TestRuntimeOptions, 'plugins'> {
  /** The plugins it depends on. */
  readonly dependencies?: readonly OraclePlugin[];
}

/** A plugin on trial. */
export interface Trial {
  readonly plugin: OraclePlugin;
  readonly options: ContractOptions;
  /** Lets a check use the plugin as it is set up, and closes it afterwards. */
  use(check: (runtime: TestRuntime) => Promise<void>): Promise<void>;
}

const VARIABLE = /^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$/;
const VERSION = /^\d+\.\d+\.\d+/;

/** What a plugin says of itself. */
export const identityTests = ({ plugin }: Trial): ContractTest[] => [
  {
    name: 'has a name, a version and a manifest that a host accepts',
    run: async () => {
      assert.equal(nameFault(plugin.name)?.problem, undefined);
      assert.match(plugin.version, VERSION);
      const manifest = PluginManifest.parse(plugin.manifest);
      const isKnown = manifest.visibility !== 'silent';
      if (isKnown) assert.ok(manifest.whenToUse.length > 0, 'whenToUse tells the agent nothing');
    },
  },
  {
    name: 'depends on plugins by name, and not on itself',
    run: async () => {
      for (const name of [...(plugin.dependsOn ?? []), ...(plugin.softDependsOn ?? [])]) {
        assert.equal(nameFault(name)?.problem, undefined, name);
        assert.notEqual(name, plugin.name);
      }
    },
  },
  {
    name: 'says of each of its variables what it is for',
    run: async () => {
      for (const [name, schema] of Object.entries(plugin.configSchema?.shape ?? {})) {
        assert.match(name, VARIABLE);
        assert.ok(schema.description, `${name} has no description`);
      }
    },
  },
  {
    name: 'can tell from any environment whether it loads, and says what it misses',
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
  { agent: 'somebody', messages: [{ role: 'user' as const, content: [] }] },
  { messages: [{ role: 'tool' as const, results: [] }] },
];

/** How a plugin's hooks stand up to what comes. */
export const hookTests = ({ plugin, use }: Trial): ContractTest[] => [
  {
    name: 'is set up, and closes',
    run: () =>
      inTime(
        'being set up',
        use(async () => undefined),
      ),
  },
  {
    name: 'is set up twice in one process, each for itself',
    run: () => use(() => use(async () => undefined)),
  },
  {
    name: 'takes its variables from its context, never from the process',
    run: async () => {
      const names = Object.keys(plugin.configSchema?.shape ?? {});
      const read = await readVariablesOf(names, () =>
        use(async (runtime) => void (await runtime.turn())),
      );
      assert.deepEqual(read, []);
    },
  },
  {
    name: 'begins a turn whatever comes with the message',
    run: () =>
      use(async (runtime) => {
        for (const parts of hostileTurns) await inTime('a turn', runtime.turn(parts));
      }),
  },
  {
    name: 'lets models be asked whatever the conversation, or refuses in words',
    run: () =>
      use(async (runtime) => {
        const turn = await runtime.turn();
        for (const request of ODD_REQUESTS)
          await inTime('beforeModel', turn.beforeModel(request)).catch(assertRefusal);
        await inTime('afterModel', turn.afterModel()).catch(assertRefusal);
        assert.deepEqual(turn.faults, []);
      }),
  },
  {
    name: 'answers a message at its gate, or refuses in words',
    run: () =>
      use(async (runtime) => {
        const holds = await inTime('the gate', runtime.admit()).catch(assertRefusal);
        for (const hold of holds ?? []) await inTime('settle', hold.settle([]));
      }),
  },
];

function assertRefusal(error: unknown): undefined {
  if (!(error instanceof OracleError)) throw error;
  return undefined;
}

const SHORTEST_DESCRIPTION = 20;

/** What the agent is given. */
export const toolTests = ({ use }: Trial): ContractTest[] => [
  {
    name: 'has tools with names of their own, and words that say when to use them',
    run: () =>
      use(async (runtime) => {
        const { tools } = await runtime.turn();
        const names = tools.map(({ name }) => name);
        assert.deepEqual(names, [...new Set(names)]);
        for (const { name, description } of tools)
          assert.ok(description.length >= SHORTEST_DESCRIPTION, `${name} says too little`);
      }),
  },
  {
    name: 'has tools that take objects a model can be told of',
    run: () =>
      use(async (runtime) => {
        for (const tool of (await runtime.turn()).tools) {
          const schema = jsonSchemaOf(tool);
          assert.equal(schema.type, 'object', `${tool.name} takes no object`);
        }
      }),
  },
  {
    name: 'has tools that answer with JSON or an error, whatever they are given',
    run: () =>
      use(async (runtime) => {
        const turn = await runtime.turn();
        for (const tool of turn.tools)
          for (const input of hostileInputs(fieldsOf(tool))) {
            if (!isAccepted(tool, input)) continue;
            const call = turn.callTool(tool.name, input);
            await inTime(tool.name, call).catch((error) => assert.ok(error instanceof Error));
          }
        assert.deepEqual(turn.faults, []);
        assert.equal(Object.hasOwn(Object.prototype, 'isAdmin'), false);
      }),
  },
];

type JsonSchema = Readonly<Record<string, unknown>>;

function jsonSchemaOf({ inputSchema }: Tool): JsonSchema {
  if (!(inputSchema instanceof z.ZodType)) return inputSchema;
  const schema = z.toJSONSchema(inputSchema, { io: 'input', unrepresentable: 'any' });
  // One that has an id is written as a reference to itself.
  const name = schema.$ref?.split('/').at(-1);
  return name ? ((schema.$defs?.[name] ?? {}) as JsonSchema) : schema;
}

function fieldsOf(tool: Tool): string[] {
  const { properties } = jsonSchemaOf(tool);
  return typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
}

function isAccepted(tool: Tool, input: unknown): boolean {
  try {
    checkInput(tool, input);
    return true;
  } catch {
    return false;
  }
}

/** What a plugin serves over HTTP. */
export const routeTests = ({ plugin, use }: Trial): ContractTest[] => [
  {
    name: 'opens only routes that it has',
    run: () =>
      use(async (runtime) => {
        const routes = await runtime.routes();
        for (const opened of plugin.getAuthExcludedRoutes?.() ?? []) {
          const one = new PublicRoutes([opened]);
          const isThere = routes.some(({ method, path }) => one.includes(method, path));
          assert.ok(isThere, `${JSON.stringify(opened)} is opened, but there is no such route`);
        }
      }),
  },
  {
    name: 'lets nobody without a name use a route that it has not opened',
    run: () =>
      use(async (runtime) => {
        for (const { method, path, isOpen } of await runtime.routes()) {
          if (isOpen) continue;
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
    name: 'answers its routes whatever is sent, errors as JSON',
    run: () =>
      use(async (runtime) => {
        for (const route of await runtime.routes()) await assertStands(runtime, route);
      }),
  },
];

const filled = (path: string, segment: string) =>
  path.replaceAll(/:\w+/g, segment).replaceAll(/[{/]?\*\w+\}?/g, `/${segment}`);

async function assertStands(runtime: TestRuntime, { method, path }: TestRoute): Promise<void> {
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
      const isJson = headers.get('content-type')?.includes('json');
      if (status >= 400) assert.ok(isJson, `${where} answered ${status} without JSON`);
    }
}

const LONG = 'x'.repeat(50_000);
const ODD_TEXTS = ['', ' ', '\u0000', LONG, '../../etc/passwd', "'; drop table x; --", '\ud800'];
const ODD_VALUES: readonly unknown[] = [...ODD_TEXTS, null, -1, 1e308, true, [], {}, [[]]];

/** Inputs that no tool was made for, some with the fields it has. */
export function hostileInputs(fields: readonly string[]): unknown[] {
  const polluting = JSON.parse('{"__proto__": {"isAdmin": true}, "constructor": 1}');
  const filled = ODD_VALUES.map((value) => Object.fromEntries(fields.map((f) => [f, value])));
  return [...ODD_VALUES, polluting, ...filled];
}

/** Texts that no path parameter was made for. */
export const oddSegments: readonly string[] = [
  'unknown',
  '%00',
  '..%2f..%2fetc%2fpasswd',
  encodeURIComponent("' or 1=1 --"),
  encodeURIComponent('💥'),
  'x'.repeat(2000),
];

/** Bodies that no route was made for. */
export const oddBodies: readonly string[] = [
  '',
  '{',
  'null',
  '[]',
  '"text"',
  '{"__proto__":{"isAdmin":true}}',
  JSON.stringify({ text: LONG.slice(0, 20_000) }),
  `${'['.repeat(500)}${']'.repeat(500)}`,
];

/** Turns as a careless or hostile client could ask for them. */
export const hostileTurns: readonly TurnParts[] = [
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

const PATIENCE_MS = 20_000;

/** Rejects when something takes longer than anybody would wait for it. */
export async function inTime<T>(what: string, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const gaveUp = new Promise<never>((_, reject) => {
    const fault = new Error(`${what} took longer than ${PATIENCE_MS / 1000} s`);
    timer = setTimeout(reject, PATIENCE_MS, fault);
  });
  try {
    return await Promise.race([work, gaveUp]);
  } finally {
    clearTimeout(timer);
  }
}

/** Names of variables that were read from the process while work was done. */
export async function readVariablesOf(
  names: readonly string[],
  work: () => Promise<void>,
): Promise<string[]> {
  const read = new Set<string>();
  const watched = new Set(names);
  // biome-ignore lint/style/noProcessEnv: this is where it is watched whether anybody reads it.
  const own = process.env;
  const note = (name: string | symbol) => {
    if (typeof name === 'string' && watched.has(name)) read.add(name);
  };
  const handler: ProxyHandler<NodeJS.ProcessEnv> = {
    get: (env, name) => {
      note(name);
      return Reflect.get(env, name);
    },
    has: (env, name) => {
      note(name);
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
