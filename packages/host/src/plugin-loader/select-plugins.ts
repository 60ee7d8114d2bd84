import { type OraclePlugin, PluginManifest, type PluginManifestInput } from '@sibyl/plugin-kit';
import { orderPlugins } from '@sibyl/plugin-kit/rules';
import { describeIssues } from '@sibyl/protocol';
import type { BootFault } from '../config/boot-error.js';
import { Environment } from '../config/environment.js';
import { readVariables, type Variables } from '../config/read-variables.js';
import { identityFaults } from './check-identity.js';
import { choosePlugins, type Features } from './choose-plugins.js';
import { pluginFault, switchOff } from './plugin-faults.js';

export type ManifestOverrides = Readonly<Record<string, Partial<PluginManifestInput>>>;

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
