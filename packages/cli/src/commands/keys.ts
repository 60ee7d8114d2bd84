import { type Call, type Command, CommandError, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { plainText, table } from '../terminal.js';

const DAY_SECONDS = 86_400;
const DEFAULT_DAYS = 90;

/** Manages access keys for programs that cannot sign. */
export const keys: Command = {
  name: 'keys',
  summary: 'Create, list or revoke access keys for other programs',
  usage: [
    'create <name> [url] [--days <number>] [--session <id>] [--model <id>] [--turns-per-day <number>] [--tools <names>] [--user <name>]',
    '[list] [url]',
    'revoke <id> [url]',
  ],
  details: [
    'An access key lets a program that cannot sign, such as a client of the OpenAI API, chat with the oracle as you. It permits nothing else.',
    'The users of a program with one key share your memory and conversations, unless it has "--tools none" or "--user *".',
    '"create" prints the key once. "revoke" ends it at once, and every turn that was started with it.',
  ].join('\n'),
  options: {
    days: {
      type: 'string',
      value: 'number',
      summary: `Days until it expires, at most 366; default ${DEFAULT_DAYS}`,
    },
    session: { type: 'string', value: 'id', summary: 'The only session that the key can use' },
    model: { type: 'string', value: 'id', summary: 'The only model that answers' },
    'turns-per-day': { type: 'string', value: 'number', summary: 'Turns per day (UTC)' },
    tools: {
      type: 'string',
      value: 'names',
      summary: 'The only tools that it uses, separated by commas; "none": no tools and no memory',
    },
    user: {
      type: 'string',
      value: 'name',
      summary:
        'A person with separate conversations and memory; "*": each request of the program names one',
    },
  },
  async run(call) {
    const [action, ...rest] = call.args;
    const run = findAction(actions, action);
    const subject = action === 'list' ? undefined : rest.shift();
    if (action === 'create' && !subject) throw new UsageError('Give the key a name');
    if (action === 'revoke' && !subject) throw new UsageError('Name the id that "list" shows');
    // Before the oracle is contacted.
    if (action === 'create') readTerms(call);
    return run(await openOracle(rest[0], call.output), call, subject ?? '');
  },
};

async function create({ client }: OpenOracle, call: Call, name: string): Promise<number> {
  const { output } = call;
  const terms = readTerms(call);
  await assertKnown(client, terms);
  const created = await client.keys.create({ name, ...terms });
  const until = formatTime(created.expiration);
  output.result(
    created,
    `${created.key}\n\nThis key is shown only once. It expires on ${until}. Its id is ${created.id}`,
  );
  return 0;
}

/** A key that names an unknown session or model could never be used. */
async function assertKnown(
  client: OpenOracle['client'],
  { session, model }: ReturnType<typeof readTerms>,
): Promise<void> {
  if (session !== undefined) await client.messages.page(session, { limit: 1 });
  if (model === undefined) return;
  const ids = (await client.models.list()).models.map(({ id }) => id);
  if (!ids.includes(model))
    throw new CommandError(
      `The oracle does not have the model "${model}". It has ${ids.join(', ')}.`,
    );
}

function readTerms({ options }: Call) {
  const { session, model, tools, user } = options;
  const turns = options['turns-per-day'];
  const days = readNumber('days', options.days ?? String(DEFAULT_DAYS));
  return {
    expiration: Math.floor(Date.now() / 1000 + days * DAY_SECONDS),
    ...(typeof session === 'string' && { session }),
    ...(typeof model === 'string' && { model }),
    ...(turns !== undefined && { turnsPerDay: readNumber('turns-per-day', turns) }),
    ...(typeof tools === 'string' && { tools: readTools(tools) }),
    ...(typeof user === 'string' && { user }),
  };
}

function readTools(names: string): string[] {
  if (names.trim() === 'none') return [];
  const tools = names.split(',').map((name) => name.trim());
  if (tools.every(Boolean)) return tools;
  throw new UsageError('--tools must be names of tools, separated by commas, or none');
}

function readNumber(option: string, value: NonNullable<Call['options'][string]>): number {
  const number = Number(value);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw new UsageError(`--${option} must be a whole number above 0`);
}

async function list({ client }: OpenOracle, { output }: Call): Promise<number> {
  const found = await client.keys.list();
  const rows = found.map(({ id, name, caveats, expiration, lastUsedAt }) => [
    id,
    name,
    Object.entries(caveats)
      .map(
        ([caveat, value]) =>
          `${caveat} ${Array.isArray(value) ? value.join(' ') || 'none' : value}`,
      )
      .join(', ') || 'not narrowed',
    lastUsedAt ? `used ${new Date(lastUsedAt).toLocaleString()}` : 'never used',
    `until ${formatTime(expiration)}`,
  ]);
  const text = rows.length > 0 ? table(rows) : 'You have no access keys at this oracle';
  output.result({ keys: found }, plainText(text));
  return 0;
}

async function revoke({ client }: OpenOracle, { output }: Call, id: string): Promise<number> {
  await client.keys.revoke(id);
  output.result({ ok: true }, 'Revoked');
  return 0;
}

const actions = { create, list, revoke };

const formatTime = (seconds: number) => new Date(seconds * 1000).toLocaleString();
