import type { EarlyPluginContext, PluginDatabase, RoomState } from '@sibyl/plugin-kit';
import { hookChecks, type LoadedPlugin, setUpPlugin, sharedWith } from '@sibyl/plugin-kit/rules';
import { assertNoFaults } from '../config/boot-error.js';
import { CloseTasks } from './close-tasks.js';
import { HookCalls } from './hook-calls.js';
import { NameClaims } from './name-claims.js';
import { createEarlyContext, type HostServices } from './plugin-context.js';
import { reasonOf } from './plugin-faults.js';
import type { SelectedPlugin } from './select-plugins.js';

/** The plugins, set up. */
export interface LoadedPlugins {
  /** In the order of their dependencies. */
  readonly plugins: readonly LoadedPlugin[];
  /** Lets them end what they have under way. */
  close(): Promise<void>;
}

interface Candidate {
  readonly selected: SelectedPlugin;
  readonly hooks: HookCalls;
  readonly context: EarlyPluginContext;
}

/** Sets up the selected plugins; what is wrong with any of them is thrown together. */
export async function loadPlugins(
  selected: readonly SelectedPlugin[],
  services: HostServices,
): Promise<LoadedPlugins> {
  const closing = new CloseTasks(services.logger);
  try {
    const candidates = await openAll(selected, services, closing);
    assertSound(candidates);
    const rooms = await roomsOf(candidates, services);
    const plugins = await setUpAll(candidates, rooms);
    assertSound(candidates);
    return { plugins, close: () => closing.run() };
  } catch (error) {
    await closing.run();
    throw error;
  }
}

function assertSound(candidates: readonly Candidate[]): void {
  assertNoFaults(candidates.flatMap(({ hooks }) => hooks.faults));
}

/** Brings the tables of all plugins up to date, before any of them begins to work. */
async function openAll(
  selected: readonly SelectedPlugin[],
  services: HostServices,
  closing: CloseTasks,
): Promise<Candidate[]> {
  const names = selected.map(({ name }) => name);
  const candidates: Candidate[] = [];
  for (const one of selected) {
    const hooks = new HookCalls(one.name);
    const database = await openTables(one, names, services).catch((error) => {
      hooks.fail(`its tables could not be made: ${reasonOf(error)}`);
      return undefined;
    });
    const context = createEarlyContext(
      {
        selected: one,
        database: database as PluginDatabase,
        availablePlugins: new Set(names),
        onClose: (run) => closing.add({ plugin: one.name, run }),
      },
      services,
    );
    candidates.push({ selected: one, hooks, context });
  }
  return candidates;
}

function openTables(
  { name, plugin }: SelectedPlugin,
  plugins: readonly string[],
  { store }: HostServices,
): Promise<PluginDatabase> {
  return store.pluginTables.open({ plugin: name, migrations: plugin.migrations ?? {}, plugins });
}

/** Who keeps the rooms' state: the plugin that says so, else the store. */
async function roomsOf(
  candidates: readonly Candidate[],
  { store, oracle }: HostServices,
): Promise<RoomState> {
  let keeper: { readonly name: string; readonly rooms: RoomState } | undefined;
  for (const { selected, hooks, context } of candidates) {
    const rooms = await hooks.call({
      hook: 'getRoomState',
      run: () => selected.plugin.getRoomState?.(context),
      check: hookChecks.roomState,
      otherwise: undefined,
    });
    if (rooms && keeper) hooks.fail(`the plugin ${keeper.name} keeps the state of rooms already`);
    if (rooms) keeper ??= { name: selected.name, rooms };
  }
  return keeper?.rooms ?? store.roomState.of(oracle.did);
}

async function setUpAll(
  candidates: readonly Candidate[],
  rooms: RoomState,
): Promise<LoadedPlugin[]> {
  const claims = new NameClaims();
  const plugins: LoadedPlugin[] = [];
  for (const { selected, hooks, context } of candidates) {
    // What it needs has failed: its own faults would only say so again.
    if (selected.plugin.dependsOn?.some((name) => hasFailed(name, candidates))) continue;
    const shared = sharedWith(selected.plugin, plugins);
    const plugin = await setUpPlugin(selected, { ...context, rooms, shared }, (one) =>
      hooks.call(one),
    );
    claims.claim(plugin, hooks);
    plugins.push(plugin);
  }
  return plugins;
}

const hasFailed = (name: string, candidates: readonly Candidate[]) =>
  candidates.some(({ selected, hooks }) => selected.name === name && hooks.faults.length > 0);
