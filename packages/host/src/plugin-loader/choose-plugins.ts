import type { Feature, OraclePlugin } from '@sibyl/plugin-kit';
import type { BootFault } from '../config/boot-error.js';
import { ownVariables, type Variables } from '../config/read-variables.js';
import { pluginFault, reasonOf, switchOff } from './plugin-faults.js';

export type Features = Readonly<Record<string, Feature>>;

/** Which plugins load, and why the others do not. */
export interface Choice {
  readonly on: readonly OraclePlugin[];
  /** Name → why it does not load. */
  readonly off: ReadonlyMap<string, string>;
  readonly faults: readonly BootFault[];
}

/** Decides by feature, by what the environment has, and by what the plugins need of each other. */
export function choosePlugins(
  plugins: readonly OraclePlugin[],
  features: Features,
  env: Variables,
): Choice {
  const off = new Map<string, string>();
  const faults: BootFault[] = [];
  for (const plugin of plugins) {
    const wish = wishOf(plugin, features, env);
    if (typeof wish === 'string') off.set(plugin.name, wish);
    else if (wish) faults.push(wish);
  }
  const names = new Set(plugins.map(({ name }) => name));
  cascade(plugins, off);
  const on = plugins.filter(({ name }) => !off.has(name));
  for (const plugin of plugins) faults.push(...forcedFaults(plugin, features, off));
  for (const plugin of on) faults.push(...missingFaults(plugin, names));
  return { on, off, faults };
}

/** Why a plugin is off by itself, what is wrong with it, or nothing if it is to load. */
function wishOf(plugin: OraclePlugin, features: Features, env: Variables) {
  const feature = features[plugin.name] ?? 'auto';
  if (feature === false) return 'switched off';
  if (feature === true || !plugin.autoDetect) return undefined;
  try {
    const own = plugin.configSchema ? ownVariables(env, plugin.configSchema) : {};
    return plugin.autoDetect(own) ? undefined : (plugin.autoDetectHint ?? 'not configured');
  } catch (error) {
    const remedy = `Mend it, or ${switchOff(plugin.name)}`;
    return pluginFault(plugin.name, `autoDetect failed: ${reasonOf(error)}`, remedy);
  }
}

/** What is off takes along what needs it. */
function cascade(plugins: readonly OraclePlugin[], off: Map<string, string>): void {
  for (let before = -1; before !== off.size; ) {
    before = off.size;
    for (const { name, dependsOn = [] } of plugins) {
      const missing = dependsOn.find((dependency) => off.has(dependency));
      if (missing && !off.has(name)) off.set(name, `needs ${missing}, which is not loaded`);
    }
  }
}

/** A plugin that was asked for by name must not be missing in silence. */
function forcedFaults(
  { name, dependsOn = [] }: OraclePlugin,
  features: Features,
  off: ReadonlyMap<string, string>,
): BootFault[] {
  if (features[name] !== true) return [];
  return dependsOn
    .filter((dependency) => off.has(dependency))
    .map((dependency) =>
      pluginFault(
        name,
        `it is switched on, but needs the plugin ${dependency}, which is not loaded: ${off.get(dependency)}`,
        `Let ${dependency} load too, or ${switchOff(name)}`,
      ),
    );
}

function missingFaults(
  { name, dependsOn = [] }: OraclePlugin,
  names: ReadonlySet<string>,
): BootFault[] {
  return dependsOn
    .filter((dependency) => !names.has(dependency))
    .map((dependency) =>
      pluginFault(
        name,
        `it needs the plugin ${dependency}, which this host does not have`,
        `Add ${dependency} to the plugins of createOracleApp, or ${switchOff(name)}`,
      ),
    );
}
