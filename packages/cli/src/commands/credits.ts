import { type Command, CommandError, findAction, UsageError } from '../command.js';
import { loadHost } from '../environment.js';

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
