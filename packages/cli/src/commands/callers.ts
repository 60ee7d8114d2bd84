import { INVITATION_MAX_DAYS } from '@sibyl/protocol';
import { type Call, type Command, CommandError, findAction, UsageError } from '../command.js';
import { loadHost } from '../environment.js';
import { table } from '../terminal.js';

/** Users whom invitations have admitted. */
export const callers: Command = {
  name: 'callers',
  summary: 'List or remove users who redeemed an invitation',
  usage: ['[list]', 'remove <did>'],
  details:
    'Reads and writes the store that the environment and .env in this folder name, whether the oracle runs or not. A running oracle notices a removal within seconds. DIDs in CALLERS_ALLOW are not listed: change the variable.',
  async run(call) {
    const [action, did] = call.args;
    const run = findAction({ list, remove }, action);
    if (action === 'remove' && !did?.startsWith('did:'))
      throw new UsageError('Name the user to remove: a DID');
    return explainFaults(() => run(call));
  },
};

async function explainFaults(work: () => Promise<number>): Promise<number> {
  try {
    return await work();
  } catch (cause) {
    throw new CommandError((cause as Error).message, { cause });
  }
}

async function list({ output }: Call): Promise<number> {
  const { listCallers } = await output.progress('Loading', loadHost());
  const found = await listCallers();
  const rows = found.map(({ did, createdAt }) => [did, new Date(createdAt).toLocaleString()]);
  output.result({ callers: found }, rows.length > 0 ? table(rows) : 'No invitation was redeemed');
  return 0;
}

async function remove({ args: [, did = ''], output }: Call): Promise<number> {
  const { removeCaller } = await output.progress('Loading', loadHost());
  if (!(await removeCaller(did))) throw new CommandError(`${did} has redeemed no invitation`);
  output.result({ ok: true, did }, `Removed ${did}`);
  return 0;
}

const DEFAULT_DAYS = 7;
const MAX_COUNT = 1000;

/** Prints invitations to an oracle that CALLERS_ALLOW closes. */
export const invite: Command = {
  name: 'invite',
  summary: 'Print invitations to your oracle',
  usage: ['[--days <number>] [--count <number>]'],
  details: [
    'Run it where the oracle runs: it signs with the key that the environment and .env in this folder name.',
    'Each invitation admits one user, once. Anyone who has the link can redeem it, so send it in private.',
    'The link begins with PUBLIC_URL, else with the HOST and PORT of the oracle.',
  ].join('\n'),
  options: {
    days: {
      type: 'string',
      value: 'number',
      summary: `Days until it expires, at most ${INVITATION_MAX_DAYS}; default ${DEFAULT_DAYS}`,
    },
    count: { type: 'string', value: 'number', summary: 'How many to print; default 1' },
  },
  async run({ options, output }) {
    const days = readNumber(options, 'days', { standard: DEFAULT_DAYS, max: INVITATION_MAX_DAYS });
    const count = readNumber(options, 'count', { standard: 1, max: MAX_COUNT });
    const { createInvitations, loadConfig } = await output.progress('Loading', loadHost());
    try {
      const config = loadConfig();
      const invitations = await createInvitations({ days, count }, config);
      if (!config.auth.callersAllow)
        output.note(
          'CALLERS_ALLOW is not set: everyone may use this oracle without an invitation.',
        );
      const until = new Date((invitations[0]?.expiration ?? 0) * 1000).toLocaleString();
      const blocks = invitations.map(({ invitation, link }) => `${link}\n\n${invitation}`);
      output.note(`Each works once, until ${until}.`);
      output.result({ invitations }, blocks.join('\n\n'));
      return 0;
    } catch (cause) {
      throw new CommandError((cause as Error).message, { cause });
    }
  },
};

function readNumber(
  options: Call['options'],
  name: string,
  { standard, max }: { readonly standard: number; readonly max: number },
): number {
  const text = options[name] ?? String(standard);
  const value = Number(text);
  if (/^\d+$/.test(String(text)) && value >= 1 && value <= max) return value;
  throw new UsageError(`--${name} must be a whole number from 1 to ${max}`);
}
