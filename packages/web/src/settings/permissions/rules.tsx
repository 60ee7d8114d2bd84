import type { PluginInfo, Rule, RuleEffect, UserRules } from '@sibyl/client';
import { useOracle, useResource } from '@sibyl/client/react';
import { useCallback } from 'react';
import { useFormDraft } from '../../chat/drafts.js';
import { type TextKey, t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { Icon, IconButton } from '../../ui/icon.js';
import { Failure, Section, useAction } from '../parts.js';

/** What the oracle may do at once, only after asking, or never: one switch for each plugin. */
export function Rules({ plugins }: { readonly plugins: readonly PluginInfo[] }) {
  const { rules } = useOracle();
  const load = useCallback((signal: AbortSignal) => rules.get({ signal }), [rules]);
  const { value, error, refresh } = useResource(load);
  return (
    <Section title={t('chat.nav.rules')} hint={t('settings.rules.hint')}>
      <Failure error={error} onRetry={refresh} />
      {value && (
        <RuleForm
          key={value.cid ?? 'none'}
          stored={value}
          plugins={plugins}
          onSave={async (next) => {
            await rules.set(next);
            await refresh();
          }}
        />
      )}
    </Section>
  );
}

interface RuleFormProps {
  readonly stored: UserRules;
  readonly plugins: readonly PluginInfo[];
  readonly onSave: (rules: readonly Rule[]) => Promise<void>;
}

function RuleForm({ stored, plugins, onSave }: RuleFormProps) {
  const names = plugins.map(({ name }) => name);
  const before = toSwitches(stored.rules, names);
  const { switches, setSwitches, undo } = useUnsigned(stored.cid, before);
  const { isBusy, error, run } = useAction();
  const operator = stored.operator ?? [];
  const tools = listRequiredTools(operator);
  const changes = countChanges(before, switches);
  return (
    <div className="card">
      {plugins.map((plugin) => (
        <PluginRule
          key={plugin.name}
          plugin={plugin}
          isRequired={isRequired(operator, plugin.name)}
          effect={switches.plugins[plugin.name] ?? 'allow'}
          onChange={(effect) =>
            setSwitches({ ...switches, plugins: { ...switches.plugins, [plugin.name]: effect } })
          }
        />
      ))}
      {switches.others.map((rule) => (
        <OtherRule
          key={rule.match}
          rule={rule}
          onChange={(effect) =>
            setSwitches({
              ...switches,
              others: switches.others.map((each) => (each === rule ? { ...each, effect } : each)),
            })
          }
          onRemove={() =>
            setSwitches({ ...switches, others: switches.others.filter((each) => each !== rule) })
          }
        />
      ))}
      {tools.length > 0 && (
        <p className="perm-note small quiet">
          {t('settings.rules.operatorTools', { tools: tools.join(', ') })}
        </p>
      )}
      {error && (
        <div className="card-pad">
          <Failure error={error} />
        </div>
      )}
      <RuleFoot
        hasRules={stored.cid !== undefined}
        changes={changes}
        isBusy={isBusy}
        onUndo={undo}
        onSign={() => void run(() => onSave(toRules(switches)).then(undo))}
      />
    </div>
  );
}

/** The switches as the user has set them, for the rules that they began with: others may replace them meanwhile. */
function useUnsigned(cid = '', before: RuleSwitches) {
  const { values, change, clear } = useFormDraft('rules', { cid: 'none', switches: before });
  return {
    switches: values.cid === cid ? values.switches : before,
    setSwitches: (switches: RuleSwitches) =>
      countChanges(before, switches) > 0 ? change({ cid, switches }) : clear(),
    undo: clear,
  };
}

interface RuleFootProps {
  readonly hasRules: boolean;
  /** How many are not signed. */
  readonly changes: number;
  readonly isBusy: boolean;
  readonly onUndo: () => void;
  readonly onSign: () => void;
}

function RuleFoot({ hasRules, changes, isBusy, onUndo, onSign }: RuleFootProps) {
  if (!hasRules && changes === 0) return null;
  return (
    <div className="approval-foot perm-foot" role="status">
      <span className="grow small">
        {changes > 0
          ? t('settings.rules.unsigned', { count: changes })
          : t('settings.rules.signed')}
      </span>
      {changes > 0 && (
        <>
          <button type="button" className="btn btn-quiet" disabled={isBusy} onClick={onUndo}>
            {t('chat.undo')}
          </button>
          <button type="button" className="btn btn-primary" disabled={isBusy} onClick={onSign}>
            {t('settings.rules.sign')}
          </button>
        </>
      )}
    </div>
  );
}

interface PluginRuleProps {
  readonly plugin: PluginInfo;
  /** Whether the operator requires approval. */
  readonly isRequired: boolean;
  readonly effect: RuleEffect;
  readonly onChange: (effect: RuleEffect) => void;
}

function PluginRule({ plugin, isRequired, effect, onChange }: PluginRuleProps) {
  const { card } = usePage();
  const shown = isRequired && effect === 'allow' ? 'ask' : effect;
  const hint = isRequired
    ? t('settings.rules.operator')
    : shown === 'block'
      ? t('settings.rules.blocked', { name: card.name })
      : plugin.summary;
  return (
    <div className="perm">
      <Icon name="tool" />
      <b dir="auto">{plugin.title}</b>
      <Effects
        label={t('settings.rules.for', { name: plugin.title })}
        name={`rule-${plugin.name}`}
        effect={shown}
        isAllowOff={isRequired}
        onChange={onChange}
      />
      <p className="small quiet" dir="auto">
        {hint}
      </p>
    </div>
  );
}

interface OtherRuleProps {
  readonly rule: Rule;
  readonly onChange: (effect: RuleEffect) => void;
  readonly onRemove: () => void;
}

/** A rule that was made elsewhere, such as with the command line. */
function OtherRule({ rule, onChange, onRemove }: OtherRuleProps) {
  return (
    <div className="perm">
      <Icon name="sliders" />
      <b>
        <code dir="ltr">{rule.match}</code>{' '}
        <IconButton
          icon="trash"
          label={t('settings.rules.remove', { match: rule.match })}
          onClick={onRemove}
        />
      </b>
      <Effects
        label={t('settings.rules.for', { name: rule.match })}
        name={`rule-${rule.match}`}
        effect={rule.effect}
        isAllowOff={false}
        onChange={onChange}
      />
      <p className="small quiet">{t('settings.rules.other')}</p>
    </div>
  );
}

const effects = {
  allow: 'settings.rules.allow',
  ask: 'settings.rules.ask',
  block: 'settings.rules.block',
} as const satisfies Record<RuleEffect, TextKey>;

interface EffectsProps {
  readonly label: string;
  readonly name: string;
  readonly effect: RuleEffect;
  readonly isAllowOff: boolean;
  readonly onChange: (effect: RuleEffect) => void;
}

function Effects({ label, name, effect, isAllowOff, onChange }: EffectsProps) {
  return (
    <fieldset className="seg">
      <legend className="vh">{label}</legend>
      {(Object.keys(effects) as RuleEffect[]).map((each) => (
        <label key={each}>
          <input
            type="radio"
            name={name}
            value={each}
            checked={each === effect}
            disabled={isAllowOff && each === 'allow'}
            onChange={() => onChange(each)}
          />
          {t(effects[each])}
        </label>
      ))}
    </fieldset>
  );
}

const PLUGIN = 'plugin:';

/** Rules as switches: one for each plugin, and one for each other rule that is stored. */
interface RuleSwitches {
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
