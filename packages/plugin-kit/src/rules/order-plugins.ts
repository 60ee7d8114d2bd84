import type { OraclePlugin } from '../plugin.js';

/** Plugins, each after those it depends on, or a cycle that keeps them from being ordered. */
export type Order =
  | { readonly ordered: readonly OraclePlugin[] }
  | { readonly cycle: readonly string[] };

/** Orders plugins by what they depend on, softly or not; otherwise they stay as they came. */
export function orderPlugins(plugins: readonly OraclePlugin[]): Order {
  const byName = new Map(plugins.map((plugin) => [plugin.name, plugin]));
  const ordered = new Set<OraclePlugin>();
  const visit = (plugin: OraclePlugin, path: readonly string[]): readonly string[] | undefined => {
    if (ordered.has(plugin)) return undefined;
    const start = path.indexOf(plugin.name);
    if (start >= 0) return [...path.slice(start), plugin.name];
    for (const name of dependenciesOf(plugin)) {
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

export const dependenciesOf = ({ dependsOn = [], softDependsOn = [] }: OraclePlugin) => [
  ...dependsOn,
  ...softDependsOn,
];
