import {
  type Feature,
  type OraclePlugin,
  PluginManifest,
  type PluginManifestInput,
} from '@sibyl/plugin-kit';
import { nameFault, orderPlugins } from '@sibyl/plugin-kit/rules';
import { describeIssues } from '@sibyl/protocol';
import { Environment } from '../config/environment.js';
import {
  type BootFault,
  ownVariables,
  readVariables,
  type Variables,
} from '../config/read-variables.js';

type ManifestOverrides = Readonly<Record<string, Partial<PluginManifestInput>>>;

export interface SelectRequest {
  readonly plugins: readonly OraclePlugin[];
  readonly features: Features;
  readonly manifestOverrides: ManifestOverrides;
  readonly env: Variables;
}

/** A plugin that is to be loaded, with all that is known of it before it is set up. */
export interface SelectedPlugin {
  readonly plugin: OraclePlugin;
  readonly name: string;
  readonly manifest: PluginManifest;
  /** Its own variables, as its schema made them. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** Which plugins load, in the order of their dependencies. */
export interface Selection {
  readonly selected: readonly SelectedPlugin[];
  /** Name → why it does not load. */
  readonly off: ReadonlyMap<string, string>;
  readonly faults: readonly BootFault[];
}

/** Decides which plugins load, and finds all that keeps them from it. */
export function selectPlugins(request: SelectRequest): Selection {
  const { plugins, features, env, manifestOverrides } = request;
  const identity = identityFaults(plugins);
  // With names that cannot be told apart, everything else would be guessed.
  if (identity.length > 0) return { selected: [], off: new Map(), faults: identity };
  const { on, off, faults } = choosePlugins(plugins, features, env);
  const order = orderPlugins(on);
  const prepared = ('ordered' in order ? order.ordered : on).map((plugin) =>
    prepare(plugin, request),
  );
  return {
    selected: prepared.flatMap(({ selected }) => selected ?? []),
    off,
    faults: [
      ...unknownNames(plugins, features, 'features or FEATURES'),
      ...unknownNames(plugins, manifestOverrides, 'manifestOverrides'),
      ...faults,
      ...('cycle' in order ? [cycleFault(order.cycle)] : []),
      ...variableClaims(on),
      ...prepared.flatMap((one) => one.faults),
    ],
  };
}

function prepare(plugin: OraclePlugin, { env, manifestOverrides }: SelectRequest) {
  const { name, configSchema } = plugin;
  const manifest = PluginManifest.safeParse({ ...plugin.manifest, ...manifestOverrides[name] });
  const remedy = `Set it right, or ${switchOff(name)}`;
  const read = configSchema
    ? readVariables(env, { name: `plugin ${name}`, schema: configSchema, remedy })
    : { values: {} };
  const faults = [
    ...describeIssues(manifest.error?.issues ?? [], 'manifest').map((line) =>
      pluginFault(
        name,
        `its manifest is wrong: ${line}`,
        'Correct the manifest, or its entry in manifestOverrides',
      ),
    ),
    ...('faults' in read ? read.faults : []),
  ];
  if (!manifest.success || 'faults' in read) return { faults };
  const config = Object.freeze(read.values);
  return { selected: { plugin, name, manifest: manifest.data, config }, faults };
}

function unknownNames(
  plugins: readonly OraclePlugin[],
  named: Readonly<Record<string, unknown>>,
  where: string,
): BootFault[] {
  const known = plugins.map(({ name }) => name);
  return Object.keys(named)
    .filter((name) => !known.includes(name))
    .map((name) =>
      pluginFault(
        name,
        `${where} names it, but there is no such plugin`,
        `Correct the name; there are ${known.join(', ') || 'none'}`,
      ),
    );
}

const cycleFault = (cycle: readonly string[]) =>
  pluginFault(
    cycle[0] ?? '',
    `it depends on itself: ${cycle.join(' → ')}`,
    'Take one of these out of dependsOn or softDependsOn',
  );

/** Each variable has one owner: nobody reads another's values, least of all the host's. */
function variableClaims(plugins: readonly OraclePlugin[]): BootFault[] {
  const owners = new Map(Object.keys(Environment.shape).map((name) => [name, 'the host']));
  return plugins.flatMap(({ name, configSchema }) =>
    Object.keys(configSchema?.shape ?? {}).flatMap((variable) => {
      const owner = owners.get(variable);
      owners.set(variable, owner ?? `the plugin ${name}`);
      const problem = `it reads ${variable}, which belongs to ${owner}`;
      return owner ? [pluginFault(name, problem, 'Give its variable a name of its own')] : [];
    }),
  );
}

type Features = Readonly<Record<string, Feature>>;

/** Which plugins load, and why the others do not. */
interface Choice {
  readonly on: readonly OraclePlugin[];
  /** Name → why it does not load. */
  readonly off: ReadonlyMap<string, string>;
  readonly faults: readonly BootFault[];
}

/** Decides by feature, by what the environment has, and by what the plugins need of each other. */
function choosePlugins(
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

/** What is wrong with the names of plugins, before anything else of them is looked at. */
function identityFaults(plugins: readonly OraclePlugin[]): BootFault[] {
  const seen = new Set<string>();
  return plugins.flatMap((plugin, i) => {
    const name: unknown = plugin?.name;
    const fault = nameFault(name) ?? versionFault(plugin) ?? (seen.has(String(name)) && TWICE);
    seen.add(String(name));
    if (!fault) return [];
    const shown = typeof name === 'string' ? name : `number ${i + 1}`;
    return [pluginFault(shown, fault.problem, fault.remedy)];
  });
}

const TWICE = {
  problem: 'there are two plugins of this name',
  remedy: 'Rename one of them or leave it out',
};

function versionFault({ version }: OraclePlugin) {
  if (typeof version === 'string' && version.trim()) return undefined;
  return { problem: 'it has no version', remedy: 'Give it one, such as 1.0.0' };
}

/** What is wrong with a plugin, told to the operator. */
export const pluginFault = (plugin: string, problem: string, remedy: string): BootFault => ({
  subject: `plugin ${plugin}`,
  problem,
  remedy,
});

/** How to go on without a plugin. */
export const switchOff = (plugin: string) => `switch it off with FEATURES=${plugin}=false`;

export const reasonOf = (error: unknown) =>
  error instanceof Error ? error.message : String(error);

/** How one plugin stands. */
export interface PluginStatus {
  readonly name: string;
  readonly version: string;
  readonly isLoaded: boolean;
  /** Why it is not loaded. */
  readonly reason?: string;
}

export function pluginStatus(
  plugins: readonly OraclePlugin[],
  { off }: Pick<Selection, 'off'>,
): PluginStatus[] {
  return plugins.map(({ name, version }) => {
    const reason = off.get(name);
    return { name, version, isLoaded: reason === undefined, ...(reason && { reason }) };
  });
}

/** What is loaded, what is not, and why, in one line. */
export function summaryOf(status: readonly PluginStatus[]): string {
  const loaded = status.filter(({ isLoaded }) => isLoaded).map(({ name }) => name);
  const off = status
    .filter(({ isLoaded }) => !isLoaded)
    .map(({ name, reason }) => `${name} (${reason})`);
  const rest = off.length > 0 ? `; not loaded: ${off.join(', ')}` : '';
  return `plugins: ${loaded.join(', ') || 'none'}${rest}`;
}
