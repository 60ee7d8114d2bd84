import type { Rule, RuleEffect } from '@sibyl/client';

const PLUGIN = 'plugin:';

/** Rules as switches: one for each plugin, and one for each other rule that is stored. */
export interface RuleSwitches {
  /** By name of the plugin. */
  readonly plugins: Readonly<Record<string, RuleEffect>>;
  /** Rules about something else, in their order. */
  readonly others: readonly Rule[];
}

export function toSwitches(rules: readonly Rule[], pluginNames: readonly string[]): RuleSwitches {
  const isOfPlugin = ({ match }: Rule) => pluginNames.some((name) => match === PLUGIN + name);
  const effects = pluginNames.map((name) => {
    const rule = rules.find(({ match }) => match === PLUGIN + name);
    return [name, rule?.effect ?? 'allow'] as const;
  });
  return {
    plugins: Object.fromEntries(effects),
    others: rules.filter((rule) => !isOfPlugin(rule)),
  };
}

/** The first rule that matches decides, so what is more specific than a plugin comes first. */
export function toRules({ plugins, others }: RuleSwitches): readonly Rule[] {
  const isSpecific = ({ match }: Rule) => !match.startsWith(PLUGIN) && match !== '*';
  const ofPlugins = Object.entries(plugins)
    .filter(([, effect]) => effect !== 'allow')
    .map(([name, effect]) => ({ match: PLUGIN + name, effect }));
  return [
    ...others.filter(isSpecific),
    ...ofPlugins,
    ...others.filter((rule) => !isSpecific(rule)),
  ];
}

export function countChanges(before: RuleSwitches, after: RuleSwitches): number {
  const changed = Object.entries(after.plugins).filter(
    ([name, effect]) => before.plugins[name] !== effect,
  );
  const removed = before.others.length - after.others.length;
  const edited = after.others.filter(
    ({ match, effect }) => before.others.find((each) => each.match === match)?.effect !== effect,
  );
  return changed.length + removed + edited.length;
}

/** Whether the operator requires approval of everything that a plugin does. */
export const isRequired = (operator: readonly string[], plugin: string): boolean =>
  operator.some((match) => {
    if (match === '*' || match === `${PLUGIN}*`) return true;
    if (!match.startsWith(PLUGIN)) return false;
    const name = match.slice(PLUGIN.length);
    return name.endsWith('*') ? plugin.startsWith(name.slice(0, -1)) : name === plugin;
  });

/** What the operator requires approval for besides whole plugins. */
export const listRequiredTools = (operator: readonly string[]): readonly string[] =>
  operator
    .filter((match) => match !== '*' && !match.startsWith(PLUGIN))
    .map((match) => match.replace(/^(?:tool|can):/, ''));
