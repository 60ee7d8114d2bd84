import { type Call, type Command, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { plainText, table } from '../terminal.js';
import { RUN_DAYS, readExpiration } from './schedules.js';

/** Matrix accounts whose messages an oracle answers as the user. */
export const matrix: Command = {
  name: 'matrix',
  summary: 'Let an oracle answer your Matrix account as you',
  usage: ['[list] [url]', 'link <user id> [url] [--days <number>]', 'unlink <user id> [url]'],
  details:
    'Your key signs a delegation for the account, and the account proves itself with a code that it sends to the oracle. "unlink" ends both.',
  options: {
    days: {
      type: 'string',
      value: 'number',
      summary: `Days until the delegation expires; default ${RUN_DAYS}`,
    },
  },
  async run(call) {
    const [name, ...rest] = call.args;
    const action = findAction(actions, name);
    const [userId, url] = name === 'list' ? ['', ...rest] : rest;
    if (userId === undefined)
      throw new UsageError('Name a Matrix account, such as @alice:example.org');
    return action(await openOracle(url, call.output), call, userId);
  },
};

type Action = (oracle: OpenOracle, call: Call, userId: string) => Promise<number>;

const list: Action = async ({ client }, { output }) => {
  const links = await client.matrix.list();
  const rows = links.map(({ userId, status }) => [userId, status]);
  output.result({ links }, plainText(rows.length > 0 ? table(rows) : 'No accounts'));
  return 0;
};

const link: Action = async ({ client }, { output, options }, userId) => {
  const created = await client.matrix.link(userId, readExpiration(options));
  const { code, oracleUserId, codeExpiresAt = '' } = created;
  const until = new Date(codeExpiresAt).toLocaleTimeString();
  const text = code
    ? `Send this from ${userId} to ${oracleUserId} until ${until}, in any room with it:\n\n${code}`
    : `${userId} is linked; its delegation is replaced`;
  output.result(created, plainText(text));
  return 0;
};

const unlink: Action = async ({ client }, { output }, userId) => {
  await client.matrix.unlink(userId);
  output.result({ ok: true }, plainText(`${userId} is no longer linked`));
  return 0;
};

const actions = { list, link, unlink };
