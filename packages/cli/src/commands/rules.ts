import type { Rule, UserRules } from '@sibyl/client';
import { RuleEffect, RuleMatch } from '@sibyl/protocol';
import { type Call, type Command, CommandError, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { plainText, table } from '../terminal.js';

/** What an oracle may do for the user without asking, or not at all. */
export const rules: Command = {
  name: 'rules',
  summary: 'Allow tools, be asked before they run, or block them',
  usage: [
    '[list] [url]',
    'allow <tool> [url]',
    'ask <tool> [url]',
    'block <tool> [url]',
    'remove <tool> [url]',
    'clear [url]',
  ],
  details: [
    'A tool is a name such as send_mail, plugin:name for all tools of a plugin, or can:ability for what you delegate; * at the end matches any rest.',
    'Your key signs the rules. The first one that matches a tool decides, so a new rule comes first. They only narrow what the operator of the oracle allows.',
  ].join('\n'),
  async run(call) {
    const [action, ...rest] = call.args;
    const run = findAction(actions, action);
    const match = action === 'list' || action === 'clear' ? '' : readMatch(rest.shift());
    const oracle = await openOracle(rest[0], call.output);
    return run(oracle, call, match);
  },
};

type Action = (oracle: OpenOracle, call: Call, match: string) => Promise<number>;

function readMatch(given: string | undefined): string {
  const { data, error } = RuleMatch.safeParse(given);
  if (data !== undefined) return data;
  const reason = given === undefined ? 'is missing' : error?.issues[0]?.message;
  throw new UsageError(`The tool ${reason}`);
}

const list: Action = async ({ client }, { output }) => {
  const stored = await client.rules.get();
  output.result(stored, describe(stored));
  return 0;
};

const put =
  (effect: RuleEffect): Action =>
  async ({ client }, { output }, match) => {
    const others = (await client.rules.get()).rules.filter((rule) => rule.match !== match);
    const stored = await client.rules.set([{ match, effect }, ...others]);
    output.result(stored, describe(stored));
    return 0;
  };

const remove: Action = async ({ client }, { output }, match) => {
  const before = (await client.rules.get()).rules;
  const rest = before.filter((rule) => rule.match !== match);
  if (rest.length === before.length) throw new CommandError(`There is no rule for ${match}`);
  const stored = await client.rules.set(rest);
  output.result(stored, describe(stored));
  return 0;
};

const clear: Action = async ({ client }, { output }) => {
  await client.rules.delete();
  output.result({ rules: [] }, 'No rules');
  return 0;
};

const actions = {
  list,
  allow: put('allow'),
  ask: put('ask'),
  block: put('block'),
  remove,
  clear,
};

function describe({ rules: all }: Pick<UserRules, 'rules'>): string {
  const rows = all.map(({ match, effect }: Rule) => [effect, match]);
  return plainText(rows.length > 0 ? table(rows) : 'No rules');
}
