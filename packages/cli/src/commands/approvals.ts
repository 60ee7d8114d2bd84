import { readFile, writeFile } from 'node:fs/promises';
import type { Approval, Decision } from '@sibyl/protocol';
import { verifyReceipt } from '@sibyl/ucan';
import { type Call, type Command, CommandError, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { plainText, table } from '../terminal.js';

/** Tool calls that wait for your signature. */
export const approvals: Command = {
  name: 'approvals',
  summary: 'List, approve or deny tool calls that wait for you',
  usage: [
    '[list] [url]',
    'approve <id> [url] [--args <json>] [--reason <text>]',
    'deny <id> [url] [--reason <text>]',
    'receipt <id> [url] [--out <file>]',
  ],
  details: [
    'Your key signs each decision, about exactly the arguments that "list" shows. An id may be shortened to its beginning.',
    '"approve --args" runs the call with other arguments. "receipt" prints the proof of a decision; check it with "sibyl receipts verify".',
  ].join('\n'),
  options: {
    args: { type: 'string', value: 'json', summary: 'With approve: arguments to use instead' },
    reason: { type: 'string', value: 'text', summary: 'Why; after a denial the model receives it' },
    out: { type: 'string', value: 'file', summary: 'With receipt: write it to this file' },
  },
  async run(call) {
    const [action, ...rest] = call.args;
    const run = findAction({ list, approve, deny, receipt }, action);
    const [id, url] = action === 'list' ? ['', ...rest] : rest;
    if (id === undefined) throw new UsageError('Name the approval: its id, or the beginning of it');
    return run(await openOracle(url, call.output), id, call);
  },
};

async function list({ client }: OpenOracle, _: string, { output }: Call): Promise<number> {
  const pending = await client.approvals.list();
  const blocks = pending.map(describe);
  output.result(
    { approvals: pending },
    plainText(blocks.length > 0 ? blocks.join('\n\n') : 'Nothing waits for your approval'),
  );
  return 0;
}

function describe({ id, facts, args, requiredBy, expiresAt, delegates }: Approval): string {
  return table([
    [id, ''],
    ['  tool', `${facts.tool} (${facts.plugin})`],
    ['  arguments', JSON.stringify(args)],
    ['  asked by', requiredBy],
    ...(delegates
      ? [['  lets it run', `${JSON.stringify(delegates.terms)} at ${delegates.with}`]]
      : []),
    ['  until', new Date(expiresAt).toLocaleString()],
  ]);
}

const approve = (oracle: OpenOracle, id: string, call: Call) => decide(oracle, id, call, 'approve');
const deny = (oracle: OpenOracle, id: string, call: Call) => decide(oracle, id, call, 'deny');

async function decide(
  { client }: OpenOracle,
  start: string,
  { options, output }: Call,
  decision: Decision,
): Promise<number> {
  const reason = options.reason === undefined ? {} : { reason: String(options.reason) };
  const args = options.args === undefined ? {} : { args: parseArguments(String(options.args)) };
  if (decision === 'deny' && 'args' in args) throw new UsageError('--args is for approve only');
  const pending = await client.approvals.list();
  const [approval, ...others] = pending.filter(({ id }) => id.startsWith(start));
  if (!approval) throw new CommandError(`No call with the id ${start} waits for your approval`);
  if (others.length > 0) throw new CommandError(`Several ids begin with ${start}: name more of it`);
  const decided =
    decision === 'approve'
      ? await client.approvals.approve(approval, { ...args, ...reason })
      : await client.approvals.deny(approval, reason);
  const text = `${decision === 'approve' ? 'Approved' : 'Denied'} ${approval.facts.tool}`;
  output.result(decided, plainText(text));
  return 0;
}

function parseArguments(text: string): Approval['args'] {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Approval['args'];
  } catch {
    // Reported below.
  }
  throw new UsageError('--args must be a JSON object');
}

async function receipt(
  { client }: OpenOracle,
  id: string,
  { options, output }: Call,
): Promise<number> {
  const text = await client.approvals.receipt(id);
  if (options.out === undefined) {
    // Without a line break at the end: a receipt counts byte for byte.
    output.write(text);
    return 0;
  }
  await writeFile(String(options.out), text);
  output.result({ ok: true, file: options.out }, `Written to ${options.out}`);
  return 0;
}

/** Proofs of decisions. */
export const receipts: Command = {
  name: 'receipts',
  summary: 'Verify the proof of a decision, without the oracle',
  usage: ['verify <file> [--user <did>] [--oracle <did>]'],
  details: [
    'A receipt shows what a user decided about a tool call, and when the oracle accepted that. It can be verified at any time, offline, and only as the oracle issued it, byte for byte.',
    'A did:key is its own proof. For any other DID, compare the key that is printed with the document of the DID.',
  ].join('\n'),
  options: {
    user: { type: 'string', value: 'did', summary: 'Who must have decided' },
    oracle: { type: 'string', value: 'did', summary: 'Which oracle must have asked' },
  },
  async run(call) {
    const [action, file] = call.args;
    const run = findAction({ verify }, action);
    if (!file) throw new UsageError('Name the file with the receipt');
    return run(file, call);
  },
};

async function verify(file: string, { options, output }: Call): Promise<number> {
  const { ok, error } = await verifyReceipt(await readFile(file));
  if (!ok) throw new CommandError(`${file} is not a valid receipt. ${error}.`);
  for (const party of ['user', 'oracle'] as const)
    if (options[party] !== undefined && options[party] !== ok[party])
      throw new CommandError(`${file} is a receipt of another ${party}: ${ok[party]}`);
  const { facts, decision, args, originalArgs, reason, user, userKey, oracle, oracleKey } = ok;
  const isEdited = JSON.stringify(args) !== JSON.stringify(originalArgs);
  const rows = [
    ['decision', decision === 'approve' ? 'approved' : 'denied'],
    ['tool', `${facts.tool} (${facts.plugin})`],
    ['arguments', JSON.stringify(args)],
    ...(isEdited ? [['instead of', JSON.stringify(originalArgs)]] : []),
    ...(reason === null ? [] : [['reason', reason]]),
    ['at', ok.decidedAt],
    ['user', user],
    ...(user === userKey ? [] : [['key of the user', userKey]]),
    ['oracle', oracle],
    ...(oracle === oracleKey ? [] : [['key of the oracle', oracleKey]]),
  ];
  output.result({ valid: true, receipt: ok }, plainText(`Valid\n${table(rows)}`));
  return 0;
}
