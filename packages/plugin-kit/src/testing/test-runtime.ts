import type { GateRequest, TurnHold } from '../message-gate.js';
import type { PluginTurn } from '../plugin-context.js';
import type { LoadedPlugin } from '../rules/set-up-plugin.js';
import { setUpPlugins } from './set-up-plugins.js';
import { CALLER_HEADER, openTestApp } from './test-app.js';
import { TEST_USER, type TestRuntimeOptions } from './test-options.js';
import { routesOf, type TestRoute } from './test-routes.js';
import { TestTurn } from './test-turn.js';
import { type LogLine, TestWorld } from './test-world.js';
import type { TurnParts } from './turn-parts.js';

export interface TestRequestParts {
  /** DID of the caller; without one the request is anonymous. */
  readonly caller?: string;
  /** Sent as JSON, or as it is if it is a text. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface TestAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** What the JSON says, or the text if it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly body: any;
}

/** Plugins at work without a host, a model or a network. */
export interface TestRuntime {
  readonly plugins: readonly LoadedPlugin[];
  /** What the plugins wrote to the log. */
  readonly log: readonly LogLine[];
  /** The messages that plugins brought from elsewhere. */
  readonly brought: readonly PluginTurn[];
  /** Starts a turn, up to the point where the host would ask a model. */
  turn(parts?: TurnParts): Promise<TestTurn>;
  /** Asks a route of the plugins, over HTTP. */
  request(method: string, path: string, parts?: TestRequestParts): Promise<TestAnswer>;
  /** Asks every gate for leave; rejects with the first refusal. */
  admit(request?: Partial<GateRequest>): Promise<readonly TurnHold[]>;
  /** Every route of the plugins. */
  routes(): Promise<readonly TestRoute[]>;
  close(): Promise<void>;
}

/** Sets up plugins as the host would; rejects with what is wrong with them. */
export async function createTestRuntime(options: TestRuntimeOptions): Promise<TestRuntime> {
  const world = new TestWorld(options);
  const plugins = await setUpPlugins(world);
  let served: ReturnType<typeof openTestApp> | undefined;
  const serve = () => {
    served ??= openTestApp(plugins);
    return served;
  };
  return {
    plugins,
    log: world.log,
    brought: world.brought,
    turn: (parts = {}) => TestTurn.start(world, plugins, parts),
    request: async (method, path, parts = {}) => ask((await serve()).url + path, method, parts),
    admit: (request = {}) => admit(plugins, request),
    routes: async () => routesOf((await serve()).app, plugins),
    close: async () => {
      await (await served)?.app.close();
      await world.close();
    },
  };
}

async function ask(
  url: string,
  method: string,
  { caller, body, headers = {} }: TestRequestParts,
): Promise<TestAnswer> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(url, {
    method,
    headers: {
      ...(text !== undefined && { 'content-type': 'application/json' }),
      ...(caller && { [CALLER_HEADER]: caller }),
      ...headers,
    },
    ...(text !== undefined && { body: text }),
  });
  return { status: response.status, headers: response.headers, body: await bodyOf(response) };
}

async function bodyOf(response: Response): Promise<unknown> {
  const text = await response.text();
  return response.headers.get('content-type')?.includes('json') ? JSON.parse(text) : text;
}

async function admit(
  plugins: readonly LoadedPlugin[],
  request: Partial<GateRequest>,
): Promise<TurnHold[]> {
  const place = { sessionId: 'test-session', requestId: 'test-request' };
  const whole = { owner: TEST_USER, ...place, model: 'test', length: 5, ...request };
  const holds: TurnHold[] = [];
  for (const { gate } of plugins) {
    const hold = await gate?.admit(whole);
    if (hold) holds.push(hold);
  }
  return holds;
}
