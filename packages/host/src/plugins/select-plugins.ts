import type { OraclePlugin, PluginManifestInput } from '@sibyl/plugin-kit';
import {
  checkPluginMembers,
  checkPluginName,
  checkPluginObject,
  type Feature,
  orderPlugins,
  PluginManifest,
} from '@sibyl/plugin-kit/host';
import { describeIssues } from '@sibyl/protocol';
import {
  type ConfigIssue,
  pickVariables,
  readVariables,
  type Variables,
} from '@sibyl/server-kit/environment';
import { Environment } from '../config/environment.js';

type ManifestOverrides = Readonly<Record<string, Partial<PluginManifestInput>>>;

export interface SelectRequest {
  readonly plugins: readonly OraclePlugin[];
  /** How many of them, from the first on, come with the host. */
  readonly bundled: number;
  readonly features: Features;
  readonly manifestOverrides: ManifestOverrides;
  readonly env: Variables;
}

/** A plugin that will be loaded, before it is set up. */
export interface SelectedPlugin {
  readonly plugin: OraclePlugin;
  readonly name: string;
  readonly manifest: PluginManifest;
  /** Its own variables, parsed by its schema. */
  readonly config: Readonly<Record<string, unknown>>;
}

/** Which plugins load, in the order of their dependencies. */
export interface Selection {
  readonly selected: readonly SelectedPlugin[];
  /** Name → why it does not load. */
  readonly off: ReadonlyMap<string, string>;
  readonly issues: readonly ConfigIssue[];
}

/** Decides which plugins load, and finds all issues that prevent it. */
export function selectPlugins(request: SelectRequest): Selection {
  const { plugins, features, env, manifestOverrides } = request;
  const identity = checkNames(request);
  // Everything else refers to plugins by name.
  if (identity.length > 0) return { selected: [], off: new Map(), issues: identity };
  const { on, off, issues } = choosePlugins(plugins, features, env);
  const order = orderPlugins(on);
  const prepared = ('ordered' in order ? order.ordered : on).map((plugin) =>
    prepare(plugin, request),
  );
  return {
    selected: prepared.flatMap(({ selected }) => selected ?? []),
    off,
    issues: [
      ...checkUnknownNames(plugins, features, 'features or FEATURES'),
      ...checkUnknownNames(plugins, manifestOverrides, 'manifestOverrides'),
      ...issues,
      ...('cycle' in order ? [createCycleIssue(order.cycle)] : []),
      ...checkVariables(on),
      ...prepared.flatMap((one) => one.issues),
    ],
  };
}

function prepare(plugin: OraclePlugin, { env, manifestOverrides }: SelectRequest) {
  const { name, configSchema } = plugin;
  const manifest = PluginManifest.safeParse(
    { ...plugin.manifest, ...manifestOverrides[name] },
    { jitless: true },
  );
  const remedy = `Correct it, or ${switchOff(name)}`;
  const read = configSchema
    ? readVariables(env, { name: `plugin ${name}`, schema: configSchema, remedy })
    : { values: {}, issues: undefined };
  const misspelled = checkPluginMembers(plugin);
  const issues = [
    ...(misspelled ? [createPluginIssue(name, misspelled, remedy)] : []),
    ...describeIssues(manifest.error?.issues ?? [], 'manifest').map((line) =>
      createPluginIssue(
        name,
        `its manifest is invalid: ${line}`,
        'Correct the manifest, or its entry in manifestOverrides',
      ),
    ),
    ...(read.issues ?? []),
  ];
  if (!manifest.success || !read.values) return { issues };
  const config = Object.freeze(read.values);
  return { selected: { plugin, name, manifest: manifest.data, config }, issues };
}

function checkUnknownNames(
  plugins: readonly OraclePlugin[],
  named: Readonly<Record<string, unknown>>,
  where: string,
): ConfigIssue[] {
  const known = plugins.map(({ name }) => name);
  return Object.keys(named)
    .filter((name) => !known.includes(name))
    .map((name) =>
      createPluginIssue(
        name,
        `${where} names it, but there is no such plugin`,
        `Correct the name; there are ${known.join(', ') || 'none'}`,
      ),
    );
}

const createCycleIssue = (cycle: readonly string[]) =>
  createPluginIssue(
    cycle[0] ?? '',
    `it depends on itself: ${cycle.join(' → ')}`,
    'Take one of these out of dependsOn or softDependsOn',
  );

/** Each variable has one owner, so that no plugin reads values of another plugin or of the host. */
function checkVariables(plugins: readonly OraclePlugin[]): ConfigIssue[] {
  const owners = new Map(Object.keys(Environment.shape).map((name) => [name, 'the host']));
  return plugins.flatMap(({ name, configSchema }) =>
    Object.keys(configSchema?.shape ?? {}).flatMap((variable) => {
      const owner = owners.get(variable);
      owners.set(variable, owner ?? `the plugin ${name}`);
      const problem = `it reads ${variable}, which belongs to ${owner}`;
      return owner ? [createPluginIssue(name, problem, 'Rename its variable')] : [];
    }),
  );
}

type Features = Readonly<Record<string, Feature>>;

/** Which plugins load, and why the others do not. */
interface Choice {
  readonly on: readonly OraclePlugin[];
  /** Name → why it does not load. */
  readonly off: ReadonlyMap<string, string>;
  readonly issues: readonly ConfigIssue[];
}

/** Decides by features, environment and dependencies. */
function choosePlugins(
  plugins: readonly OraclePlugin[],
  features: Features,
  env: Variables,
): Choice {
  const off = new Map<string, string>();
  const issues: ConfigIssue[] = [];
  for (const plugin of plugins) {
    const decision = decide(plugin, features, env);
    if (typeof decision === 'string') off.set(plugin.name, decision);
    else if (decision) issues.push(decision);
  }
  const names = new Set(plugins.map(({ name }) => name));
  cascade(plugins, off);
  const on = plugins.filter(({ name }) => !off.has(name));
  for (const plugin of plugins) issues.push(...checkForced(plugin, features, off));
  for (const plugin of on) issues.push(...checkMissing(plugin, names));
  return { on, off, issues };
}

/** Returns why a plugin is off, apart from its dependencies, or an issue; undefined if it loads. */
function decide(plugin: OraclePlugin, features: Features, env: Variables) {
  const feature = features[plugin.name] ?? 'auto';
  if (feature === false) return 'switched off';
  if (feature === true || !plugin.autoDetect) return undefined;
  try {
    const own = plugin.configSchema ? pickVariables(env, plugin.configSchema) : {};
    return plugin.autoDetect(own) ? undefined : (plugin.autoDetectHint ?? 'not configured');
  } catch (error) {
    const remedy = `Fix it, or ${switchOff(plugin.name)}`;
    return createPluginIssue(plugin.name, `autoDetect failed: ${describeError(error)}`, remedy);
  }
}

/** Plugins that depend on one that is off are off too. */
function cascade(plugins: readonly OraclePlugin[], off: Map<string, string>): void {
  for (let before = -1; before !== off.size; ) {
    before = off.size;
    for (const { name, dependsOn = [] } of plugins) {
      const missing = dependsOn.find((dependency) => off.has(dependency));
      if (missing && !off.has(name)) off.set(name, `needs ${missing}, which is not loaded`);
    }
  }
}

/** A plugin that is enabled by name must not be missing silently. */
function checkForced(
  { name, dependsOn = [] }: OraclePlugin,
  features: Features,
  off: ReadonlyMap<string, string>,
): ConfigIssue[] {
  if (features[name] !== true) return [];
  return dependsOn
    .filter((dependency) => off.has(dependency))
    .map((dependency) =>
      createPluginIssue(
        name,
        `it is switched on, but needs the plugin ${dependency}, which is not loaded: ${off.get(dependency)}`,
        `Let ${dependency} load too, or ${switchOff(name)}`,
      ),
    );
}

function checkMissing(
  { name, dependsOn = [] }: OraclePlugin,
  names: ReadonlySet<string>,
): ConfigIssue[] {
  return dependsOn
    .filter((dependency) => !names.has(dependency))
    .map((dependency) =>
      createPluginIssue(
        name,
        `it needs the plugin ${dependency}, which this host does not have`,
        `Add ${dependency} to the plugins of createOracleApp, or ${switchOff(name)}`,
      ),
    );
}

/** Checks names and versions, before anything else. */
function checkNames({ plugins, bundled }: SelectRequest): ConfigIssue[] {
  const seen = new Set<string>();
  return plugins.flatMap((plugin, i) => {
    const fault =
      checkPluginObject(plugin) ??
      checkPluginName(plugin.name) ??
      checkVersion(plugin) ??
      (seen.has(plugin.name) && TWICE);
    seen.add(plugin?.name);
    const shown = plugin?.name || plugin?.manifest?.title || `number ${i + 1 - bundled}`;
    return fault ? [createPluginIssue(shown, fault.problem, fault.remedy)] : [];
  });
}

const TWICE = {
  problem: 'there are two plugins with this name',
  remedy: 'Rename one of them or leave it out',
};

function checkVersion({ version }: OraclePlugin) {
  if (typeof version === 'string' && version.trim()) return undefined;
  return { problem: 'it has no version', remedy: 'Give it one, such as 1.0.0' };
}

export const createPluginIssue = (
  plugin: string,
  problem: string,
  remedy: string,
): ConfigIssue => ({
  subject: `plugin ${plugin}`,
  problem,
  remedy,
});

/** The remedy that works for every issue of a plugin. */
export const switchOff = (plugin: string) => `switch it off with FEATURES=${plugin}=false`;

export const describeError = (error: unknown) =>
  error instanceof Error ? error.message : String(error);

/** Whether one plugin is loaded. */
export interface PluginStatus {
  readonly name: string;
  readonly version: string;
  readonly isLoaded: boolean;
  /** Why it is not loaded. */
  readonly reason?: string;
}

export function describeStatus(
  plugins: readonly OraclePlugin[],
  { off }: Pick<Selection, 'off'>,
): PluginStatus[] {
  return plugins.map(({ name, version }) => {
    const reason = off.get(name);
    return { name, version, isLoaded: reason === undefined, ...(reason && { reason }) };
  });
}

/** Which plugins are loaded, which are not, and why, in one line. */
export function summarizePlugins(status: readonly PluginStatus[]): string {
  const loaded = status.filter(({ isLoaded }) => isLoaded).map(({ name }) => name);
  const off = status
    .filter(({ isLoaded }) => !isLoaded)
    .map(({ name, reason }) => `${name} (${reason})`);
  const rest = off.length > 0 ? `; not loaded: ${off.join(', ')}` : '';
  return `plugins: ${loaded.join(', ') || 'none'}${rest}`;
}
