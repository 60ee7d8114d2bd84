import { type DynamicModule, RequestMethod, type Type } from '@nestjs/common';
import type { ReplyPart } from '@sibyl/protocol';
import type {
  RoomState,
  SetupContext,
  Shared,
  SharedState,
  TurnCondition,
  TurnContext,
  TurnEmit,
} from '../context.js';
import type { PluginManifest } from '../manifest.js';
import type { Middleware } from '../middleware.js';
import type { AuthExcludedRoute, MessageGate, OraclePlugin, PluginContext } from '../plugin.js';
import { createRouteFactory } from '../routes.js';
import { definitions, type SubAgent, type Tool } from '../tool.js';
import { hookChecks } from './hook-checks.js';
import { buildRouteModule, type PluginRoute } from './route-module.js';

/** A plugin that is selected to load. */
export interface SelectedPlugin {
  readonly plugin: OraclePlugin;
  readonly name: string;
  /** With the operator's overrides and the defaults. */
  readonly manifest: PluginManifest;
  /** Its own environment variables. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** A plugin that is set up, with everything it contributes. */
export interface LoadedPlugin extends SelectedPlugin {
  readonly services: unknown;
  /** Undefined if every turn concerns it. */
  readonly when?: TurnCondition | undefined;
  readonly shared: SharedState;
  readonly tools: readonly Tool[];
  readonly subAgents: readonly SubAgent[];
  readonly middlewares: readonly Middleware[];
  readonly gate: MessageGate | undefined;
  readonly nestModules: readonly (Type | DynamicModule)[];
  readonly openRoutes: readonly AuthExcludedRoute[];
  /** Without those of its Nest modules. */
  readonly routes: readonly PluginRoute[];
}

/** A call of one hook while the host starts. */
export interface SetupHook<T> {
  readonly hook: string;
  readonly run: () => T | Promise<T> | undefined;
  /** Returns what is wrong with the value. */
  readonly check: (value: unknown) => string | undefined;
  /** The value if the plugin does not have the hook. */
  readonly otherwise: T;
}

/** Calls the hooks of one plugin while the host starts. */
export interface SetupHooks {
  readonly hasFailed: boolean;
  /** Returns `otherwise` if the hook fails and the host only reports that. */
  call<T>(hook: SetupHook<T>): Promise<T>;
  fail(problem: string): void;
}

export interface PluginCandidate {
  readonly selected: SelectedPlugin;
  readonly context: Omit<SetupContext, 'rooms' | 'storedRooms' | 'shared'>;
  readonly hooks: SetupHooks;
  /** Registers a task for when the host closes; the last one runs first. */
  readonly onClose: (task: () => void | Promise<void>) => void;
}

/** Sets up plugins, which come in the order of their dependencies. */
export async function setUpPlugins(
  candidates: readonly PluginCandidate[],
  storeRooms: RoomState,
): Promise<LoadedPlugin[]> {
  const late: { chosen?: RoomState } = {};
  const rooms = { rooms: createLateRoomState(late), storedRooms: storeRooms };
  const started: StartedPlugin[] = [];
  for (const candidate of candidates) {
    if (needsFailed(candidate, candidates)) continue;
    started.push(await startPlugin(candidate, rooms, started));
  }
  late.chosen = (await findRoomState(started)) ?? storeRooms;
  const loaded: LoadedPlugin[] = [];
  for (const plugin of started)
    if (!plugin.hooks.hasFailed && !needsFailed(plugin, candidates))
      loaded.push(await callHooks(plugin));
  return loaded;
}

/** Whether a plugin that it depends on failed: its own errors would only repeat that. */
function needsFailed(
  { selected: { plugin } }: PluginCandidate,
  candidates: readonly PluginCandidate[],
): boolean {
  const failed = candidates.filter(({ hooks }) => hooks.hasFailed);
  return failed.some(({ selected }) => plugin.dependsOn?.includes(selected.name));
}

interface StartedPlugin extends PluginCandidate {
  readonly context: PluginContext;
  readonly shared: SharedState;
}

async function startPlugin(
  candidate: PluginCandidate,
  rooms: Pick<SetupContext, 'rooms' | 'storedRooms'>,
  started: readonly StartedPlugin[],
): Promise<StartedPlugin> {
  const { selected, hooks, onClose } = candidate;
  const { plugin } = selected;
  const setupContext = { ...candidate.context, ...rooms, shared: listShared(plugin, started) };
  const services = await hooks.call<unknown>({
    hook: 'setup',
    run: () => plugin.setup?.(setupContext),
    check: hookChecks.services,
    otherwise: undefined,
  });
  const { config } = setupContext;
  const route = createRouteFactory({ config, services });
  const context = { ...setupContext, ...definitions, route, services };
  if (hooks.hasFailed) return { ...candidate, context, shared: {} };
  if (plugin.close) onClose(() => plugin.close?.(services));
  const shared = await hooks.call({
    hook: 'getSharedState',
    run: () => plugin.getSharedState?.(context),
    check: hookChecks.sharedState,
    otherwise: {},
  });
  return { ...candidate, context, shared };
}

/** The values that the dependencies of a plugin share; those that are computed per turn are not known yet. */
function listShared(plugin: OraclePlugin, started: readonly StartedPlugin[]): Shared {
  const sources = new Set(listDependencies(plugin));
  const entries = started
    .filter(({ selected }) => sources.has(selected.name))
    .flatMap(({ shared }) => Object.entries(shared))
    .filter(([, value]) => typeof value !== 'function');
  return createShared(Object.fromEntries(entries));
}

/** Reads shared values by their keys. */
export function createShared(values: SharedState): Shared {
  const shared: Shared = {
    // The key carries the type that its plugin promises.
    get: (key) => (Object.hasOwn(values, key.name) ? (values[key.name] as never) : undefined),
    require: (key) => {
      const value = shared.get(key);
      if (value === undefined)
        throw new Error(`No loaded plugin shares ${key.name}, or it failed in this turn`);
      return value;
    },
  };
  return Object.freeze(shared);
}

/** What `TurnCondition` asks about a turn. */
type AskedTurn = Pick<TurnContext, 'user' | 'session' | 'request' | 'history' | 'sessionState'> & {
  readonly shared: Shared;
};

/** Whether a turn concerns a plugin with this condition. */
export async function meetsCondition(when: TurnCondition, turn: AskedTurn): Promise<boolean> {
  const { user, session, request, history, sessionState, shared } = turn;
  if (when.clients?.includes(session.client)) return true;
  if (hasAny(user, when.user) || hasAny(request, when.request)) return true;
  if (when.attachments && [request, ...history].some(({ attachments }) => isFilled(attachments)))
    return true;
  if (when.shared?.some((key) => isFilled(shared.get(key)))) return true;
  for (const key of when.sessionState ?? [])
    if ((await sessionState.get(key)) !== undefined) return true;
  return false;
}

const hasAny = <Part extends object>(part: Part, members: readonly (keyof Part)[] = []) =>
  members.some((member) => isFilled(part[member]));

const isFilled = (value: unknown) =>
  typeof value === 'object' && value !== null ? Object.keys(value).length > 0 : value !== undefined;

/** Identifies a turn in a conversation. */
interface TurnPlace {
  readonly sessionId: string;
  readonly requestId: string;
}

/** Creates the `emit` of a turn's context: each method sends one kind of frame, with the ids of the turn. */
export function createTurnEmit(
  { sessionId, requestId }: TurnPlace,
  emit: (part: ReplyPart) => void,
): TurnEmit {
  const place = { sessionId, requestId };
  const timestamp = () => new Date().toISOString();
  return {
    toolCall: (data) => emit({ event: 'tool_call', data: { ...data, ...place } }),
    actionCall: (data) => emit({ event: 'action_call', data: { ...data, ...place } }),
    renderComponent: (data) => emit({ event: 'render_component', data: { ...data, ...place } }),
    reasoning: (data) =>
      emit({ event: 'reasoning', data: { ...data, ...place, timestamp: timestamp() } }),
    browserToolCall: (data) => emit({ event: 'browser_tool_call', data: { ...data, ...place } }),
    router: (data) => emit({ event: 'router_update', data: { ...data, ...place } }),
    messageCacheInvalidation: (data) =>
      emit({ event: 'message_cache_invalidation', data: { ...data, ...place, status: 'done' } }),
    citation: (citation) => emit({ event: 'citation', data: { citation, ...place } }),
  };
}

async function findRoomState(started: readonly StartedPlugin[]): Promise<RoomState | undefined> {
  let found: { readonly name: string; readonly rooms: RoomState } | undefined;
  for (const { selected, hooks, context } of started) {
    if (hooks.hasFailed) continue;
    const rooms = await hooks.call({
      hook: 'getRoomState',
      run: () => selected.plugin.getRoomState?.(context),
      check: hookChecks.roomState,
      otherwise: undefined,
    });
    if (rooms && found) hooks.fail(`the plugin ${found.name} already stores the state of rooms`);
    if (rooms) found ??= { name: selected.name, rooms };
  }
  return found?.rooms;
}

async function callHooks(started: StartedPlugin): Promise<LoadedPlugin> {
  const { selected, hooks, context, shared } = started;
  const { plugin } = selected;
  return {
    ...selected,
    services: context.services,
    when: await hooks.call({
      hook: 'when',
      run: () => (typeof plugin.when === 'function' ? plugin.when(context) : plugin.when),
      check: hookChecks.when,
      otherwise: undefined,
    }),
    shared,
    tools: await hooks.call({
      hook: 'getTools',
      run: () => plugin.getTools?.(context),
      check: hookChecks.tools,
      otherwise: [],
    }),
    subAgents: await hooks.call({
      hook: 'getSubAgents',
      run: () => plugin.getSubAgents?.(context),
      check: hookChecks.subAgents,
      otherwise: [],
    }),
    middlewares: await hooks.call({
      hook: 'getMiddlewares',
      run: () => plugin.getMiddlewares?.(context),
      check: hookChecks.middlewares,
      otherwise: [],
    }),
    gate: await hooks.call({
      hook: 'getMessageGate',
      run: () => plugin.getMessageGate?.(context),
      check: hookChecks.gate,
      otherwise: undefined,
    }),
    ...(await callRouteHooks(started)),
  };
}

async function callRouteHooks({
  selected: { plugin, name },
  hooks,
  context,
}: StartedPlugin): Promise<Pick<LoadedPlugin, 'nestModules' | 'openRoutes' | 'routes'>> {
  const routes = await hooks.call({
    hook: 'routes',
    run: () => (typeof plugin.routes === 'function' ? plugin.routes(context) : plugin.routes),
    check: hookChecks.routes,
    otherwise: [],
  });
  const nestModules = await hooks.call({
    hook: 'getNestModules',
    run: () => plugin.getNestModules?.(context),
    check: hookChecks.nestModules,
    otherwise: [],
  });
  const excludedRoutes = await hooks.call({
    hook: 'getAuthExcludedRoutes',
    run: () => plugin.getAuthExcludedRoutes?.(),
    check: hookChecks.openRoutes,
    otherwise: [],
  });
  const publicRoutes = routes
    .filter(({ auth }) => auth === 'public')
    .map(({ path, method }) => ({ path, method: RequestMethod[method] }));
  const routeModules = routes.length > 0 ? [buildRouteModule(name, routes)] : [];
  return {
    nestModules: [...nestModules, ...routeModules],
    openRoutes: [...excludedRoutes, ...publicRoutes],
    routes,
  };
}

/** The state of rooms; which plugin stores it is known once all plugins are set up. */
function createLateRoomState(late: { readonly chosen?: RoomState }): RoomState {
  const get = () => {
    if (late.chosen) return late.chosen;
    throw new Error('Room state cannot be used in setup, only after it');
  };
  return Object.freeze<RoomState>({
    read: async (...args) => get().read(...args),
    update: async (...args) => get().update(...args),
  });
}

/** Plugins, each after those it depends on, or a cycle of dependencies. */
type Order = { readonly ordered: readonly OraclePlugin[] } | { readonly cycle: readonly string[] };

/** Orders plugins by dependsOn and softDependsOn, and keeps their order otherwise. */
export function orderPlugins(plugins: readonly OraclePlugin[]): Order {
  const byName = new Map(plugins.map((plugin) => [plugin.name, plugin]));
  const ordered = new Set<OraclePlugin>();
  const visit = (plugin: OraclePlugin, path: readonly string[]): readonly string[] | undefined => {
    if (ordered.has(plugin)) return undefined;
    const start = path.indexOf(plugin.name);
    if (start >= 0) return [...path.slice(start), plugin.name];
    for (const name of listDependencies(plugin)) {
      const dependency = byName.get(name);
      const cycle = dependency && visit(dependency, [...path, plugin.name]);
      if (cycle) return cycle;
    }
    ordered.add(plugin);
    return undefined;
  };
  for (const plugin of plugins) {
    const cycle = visit(plugin, []);
    if (cycle) return { cycle };
  }
  return { ordered: [...ordered] };
}

const listDependencies = ({ dependsOn = [], softDependsOn = [] }: OraclePlugin) => [
  ...dependsOn,
  ...softDependsOn,
];
