import { type Call, type Command, CommandError, findAction, UsageError } from '../command.js';
import { loadHost } from '../environment.js';
import { plainText, table } from '../terminal.js';

const WHERE =
  'Reads and writes the store that the environment and .env in this folder name, whether the oracle runs or not. A running oracle notices a change within seconds.';

/** Who may use the operator page. */
export const operators: Command = {
  name: 'operators',
  summary: 'List, add or remove those who may use the operator page',
  usage: ['[list]', 'add <did>', 'remove <did>'],
  details: `${WHERE} The variable OPERATORS lists operators too; those can only be changed there.`,
  async run(call) {
    const [action, did] = call.args;
    const run = findAction(
      {
        list: () => listAll(call),
        add: () => change('add', readDid(did), call),
        remove: () => change('remove', readDid(did), call),
      },
      action,
    );
    return explainFaults(run);
  },
};

async function listAll({ output }: Call): Promise<number> {
  const { listOperators } = await output.progress('Loading', loadHost());
  const { listed, added } = await listOperators();
  const rows = [
    ...listed.map((did) => [did, 'OPERATORS']),
    ...added.map(({ did, createdAt }) => [did, `added ${new Date(createdAt).toLocaleString()}`]),
  ];
  const text = rows.length > 0 ? table(rows) : 'There are no operators';
  output.result({ listed, added }, text);
  return 0;
}

async function change(action: 'add' | 'remove', did: string, { output }: Call): Promise<number> {
  const { changeOperators } = await output.progress('Loading', loadHost());
  const hasChanged = await changeOperators(action, did);
  if (!hasChanged && action === 'remove')
    throw new CommandError(
      `${did} was not added by this command; is it in OPERATORS? Change the variable then.`,
    );
  const done = action === 'add' ? 'is an operator' : 'is not an operator any more';
  output.result({ ok: true, did, changed: hasChanged }, `${did} ${done}`);
  return 0;
}

const DEFAULT_DAYS = 30;

/** What users used, and who is blocked. */
export const users: Command = {
  name: 'users',
  summary: 'Show what users used; block or unblock one',
  usage: ['[list] [--days <number>]', 'block <did> [--reason <text>]', 'unblock <did>'],
  details: `${WHERE} Blocking ends the open sockets and running turns of the user.`,
  options: {
    days: { type: 'string', value: 'number', summary: `How many days; default ${DEFAULT_DAYS}` },
    reason: { type: 'string', value: 'text', summary: 'Why a user is blocked, for the audit log' },
  },
  async run(call) {
    const [action, did] = call.args;
    const run = findAction(
      {
        list: () => listUsage(call),
        block: () => setBlocked('block', readDid(did), call),
        unblock: () => setBlocked('unblock', readDid(did), call),
      },
      action,
    );
    return explainFaults(run);
  },
};

async function listUsage({ options, output }: Call): Promise<number> {
  const days = readNumber(options.days, 'days', { standard: DEFAULT_DAYS, max: 366 });
  const { listUsers } = await output.progress('Loading', loadHost());
  const found = await listUsers(days);
  const blocked = new Set(found.blocked.map(({ did }) => did));
  const idle = [...blocked].filter((did) => !found.users.some(({ user }) => user === did));
  const rows = [
    ...found.users.map(({ user, turns, failed, inputTokens, outputTokens, cost }) => [
      user,
      String(turns),
      String(failed),
      String(inputTokens + outputTokens),
      cost === null ? '' : cost.toFixed(4),
      blocked.has(user) ? 'blocked' : '',
    ]),
    ...idle.map((did) => [did, '0', '0', '0', '', 'blocked']),
  ];
  const head = ['User', 'Turns', 'Failed', 'Tokens', 'Cost', ''];
  output.result(
    { days, ...found },
    rows.length > 0 ? table([head, ...rows]) : `This oracle had no users in the last ${days} days`,
  );
  return 0;
}

async function setBlocked(
  action: 'block' | 'unblock',
  did: string,
  { options, output }: Call,
): Promise<number> {
  const { changeBlocked } = await output.progress('Loading', loadHost());
  const reason = typeof options.reason === 'string' ? options.reason : undefined;
  const changed = await changeBlocked(action === 'block' ? 'add' : 'remove', did, reason);
  if (!changed && action === 'unblock') throw new CommandError(`${did} is not blocked`);
  output.result({ ok: true, did, changed }, `${did} is ${action}ed`);
  return 0;
}

const DEFAULT_ENTRIES = 50;

/** What operators did. */
export const audit: Command = {
  name: 'audit',
  summary: 'Show what operators did, newest first',
  usage: ['[--limit <number>]'],
  details: WHERE,
  options: {
    limit: {
      type: 'string',
      value: 'number',
      summary: `How many entries; default ${DEFAULT_ENTRIES}`,
    },
  },
  async run({ options, output }) {
    const limit = readNumber(options.limit, 'limit', { standard: DEFAULT_ENTRIES, max: 10_000 });
    return explainFaults(async () => {
      const { listAudit } = await output.progress('Loading', loadHost());
      const actions = await listAudit(limit);
      const rows = actions.map(({ at, operator, action, target, note = '' }) => [
        new Date(at).toLocaleString(),
        operator,
        action,
        target,
        plainText(note),
      ]);
      output.result({ actions }, rows.length > 0 ? table(rows) : 'Operators did nothing yet');
      return 0;
    });
  },
};

function readDid(did: string | undefined): string {
  if (!did?.startsWith('did:')) throw new UsageError('Name the user: a DID');
  return did;
}

function readNumber(
  option: unknown,
  name: string,
  { standard, max }: { readonly standard: number; readonly max: number },
): number {
  const value = Number(option ?? standard);
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw new UsageError(`--${name} must be a whole number from 1 to ${max}`);
}

async function explainFaults(work: () => Promise<number>): Promise<number> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof UsageError || cause instanceof CommandError) throw cause;
    throw new CommandError((cause as Error).message, { cause });
  }
}

/** Gives users credit, in the store of the oracle whose configuration is here. */
export const credits: Command = {
  name: 'credits',
  summary: 'Grant credit to a user',
  usage: ['grant <did> <amount> [--note <text>]'],
  details:
    'Writes to the store that the environment and .env in this folder name, whether the oracle runs or not. The amount is a whole number in the smallest unit.',
  options: { note: { type: 'string', value: 'text', summary: 'Why, for the ledger' } },
  async run({ args: [action, did, amount], options, output }) {
    findAction({ grant: true }, action);
    if (!did?.startsWith('did:')) throw new UsageError('Name the user: a DID');
    if (!/^\d{1,15}$/.test(amount ?? '')) throw new UsageError('Name the amount: a whole number');
    const { grantCredits } = await output.progress('Loading', loadHost());
    const note = typeof options.note === 'string' ? { note: options.note } : {};
    try {
      const outcome = await grantCredits({ owner: did, amount: Number(amount), ...note });
      output.result(outcome, `Granted ${amount}; the balance is ${outcome.balance}`);
      return 0;
    } catch (cause) {
      throw new CommandError((cause as Error).message, { cause });
    }
  },
};
