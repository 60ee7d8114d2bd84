import { type Call, type Command, CommandError, UsageError } from '../command.js';
import { table } from '../terminal/table.js';

/** Users whom invitations have admitted. */
export const callers: Command = {
  name: 'callers',
  summary: 'List or remove users who redeemed an invitation',
  usage: ['list', 'remove <did>'],
  details:
    'Reads and writes the store that the environment and .env in this folder name, whether the oracle runs or not. A running oracle notices a removal within seconds. DIDs in CALLERS_ALLOW are not listed: change the variable.',
  async run(call) {
    const [action, did] = call.args;
    if (action !== 'list' && action !== 'remove') {
      throw new UsageError('Say what to do: list or remove');
    }
    if (action === 'list') return explainFaults(() => list(call));
    if (!did?.startsWith('did:')) throw new UsageError('Say whom to remove: a DID');
    return explainFaults(() => remove(did, call));
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
  const { listCallers } = await output.progress('Loading', import('@sibyl/host'));
  const found = await listCallers();
  const rows = found.map(({ did, createdAt }) => [did, new Date(createdAt).toLocaleString()]);
  output.result({ callers: found }, rows.length > 0 ? table(rows) : 'No invitation was redeemed');
  return 0;
}

async function remove(did: string, { output }: Call): Promise<number> {
  const { removeCaller } = await output.progress('Loading', import('@sibyl/host'));
  if (!(await removeCaller(did))) throw new CommandError(`${did} has redeemed no invitation`);
  output.result({ ok: true, did }, `Removed ${did}`);
  return 0;
}
