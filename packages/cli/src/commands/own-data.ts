import { stat } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Fact, ImportJob, Usage } from '@sibyl/client';
import {
  type Call,
  type Command,
  CommandError,
  findAction,
  isAddress,
  UsageError,
} from '../command.js';
import { loadHost, type OpenOracle, openFile, openOracle, saveBody } from '../environment.js';
import { plainText, table } from '../terminal.js';

const POLL_MS = 500;

/** Downloads everything that an oracle stores about the user. */
export const exportData: Command = {
  name: 'export',
  summary: 'Save everything that an oracle stores about you',
  usage: ['[file] [url]'],
  details:
    'Writes a zip archive of JSON lines and files, signed by the oracle; default sibyl-export.zip. An existing file is not replaced.',
  async run({ args, output }) {
    const [path = 'sibyl-export.zip', url] = isAddress(args[0]) ? [undefined, ...args] : args;
    const { client } = await openOracle(url, output);
    const response = await client.me.export();
    const saving = saveBody(response, path, { name: 'export', mode: 0o600 });
    await output.progress(`Writing ${path}`, saving);
    const { size } = await stat(path);
    output.result({ path, bytes: size }, `Wrote ${path} (${size} bytes)`);
    return 0;
  },
};

/** Imports an archive. */
export const importData: Command = {
  name: 'import',
  summary: 'Import an export of an oracle or of ChatGPT',
  usage: ['<file> [url]'],
  details:
    'Accepts what "sibyl export" wrote, and the zip archive or the conversations.json of ChatGPT. Nothing that exists is changed; importing a file again adds what is missing.',
  async run({ args: [path, url], output }) {
    if (path === undefined) throw new UsageError('Name the file to import');
    const { client } = await openOracle(url, output);
    const archive = await openFile(path);
    let job = await output.progress('Sending the archive', client.me.import(archive));
    while (job.status === 'running') {
      await sleep(POLL_MS);
      job = await client.me.findImport(job.id);
    }
    if (job.status === 'failed') throw new CommandError(job.error ?? 'The import failed');
    output.result(job, describeImport(job));
    return 0;
  },
};

function describeImport({ stored, present, refused, skipped = {} }: ImportJob): string {
  const rows = Object.entries(stored).map(([name, count]) => [name, `${count} new`]);
  const left = Object.entries(skipped).map(([name, count]) => [
    name,
    `${count} skipped: this oracle does not store such data`,
  ]);
  const invalid = refused - Object.values(skipped).reduce((sum, count) => sum + count, 0);
  return table([
    ...rows,
    ...left,
    ['there already', String(present)],
    ...(invalid > 0 ? [['refused', `${invalid}, invalid or beyond a limit`]] : []),
  ]);
}

/** Erases the user. */
export const eraseData: Command = {
  name: 'erase',
  summary: 'Erase everything that an oracle stores about you',
  usage: ['[url] --yes'],
  details:
    'Your key signs the confirmation. It cannot be undone: run "sibyl export" first. Prints what the operator has to keep.',
  options: { yes: { type: 'boolean', summary: 'Confirms that everything is to be erased' } },
  async run({ args: [url], options, output }) {
    const { client, name } = await openOracle(url, output);
    if (options.yes !== true)
      throw new UsageError(`Add --yes to erase everything that ${name} stores about you`);
    const erased = await output.progress('Erasing', client.me.erase());
    const kept = erased.kept.map(({ table: name, rows, reason }) => [name, String(rows), reason]);
    const rest = kept.length > 0 ? `\nKept:\n${table(kept)}` : '';
    output.result(erased, `Erased ${erased.rows} rows${rest}`);
    return 0;
  },
};

/** What the user used. */
export const usage: Command = {
  name: 'usage',
  summary: 'Show your turns, tokens and cost',
  usage: ['[url] [--days <number>]'],
  options: {
    days: { type: 'string', value: 'number', summary: 'Days up to today; default 30, at most 366' },
  },
  async run({ args: [url], options, output }) {
    const days = options.days === undefined ? undefined : Number(options.days);
    if (days !== undefined && !(Number.isInteger(days) && days >= 1 && days <= 366))
      throw new UsageError('--days must be a whole number from 1 to 366');
    const { client } = await openOracle(url, output);
    const used = await client.usage(days === undefined ? {} : { days });
    output.result(used, plainText(describeUsage(used)));
    return 0;
  },
};

function describeUsage({ since, total, days, models, sessions }: Usage): string {
  const line = (name: string, { turns, inputTokens, outputTokens, cost }: Usage['total']) => [
    name,
    `${turns} ${turns === 1 ? 'turn' : 'turns'}`,
    `${inputTokens} + ${outputTokens} tokens`,
    cost === undefined ? '' : cost.toFixed(4),
  ];
  return table([
    line(`since ${since}`, total),
    ...days.map((each) => line(each.day, each)),
    ...models.map((each) => line(each.model, each)),
    ...sessions.map((each) => line(each.title ?? each.sessionId, each)),
  ]);
}

/** The facts that an oracle remembers about the user. */
export const memory: Command = {
  name: 'memory',
  summary: 'List, add, change or forget what an oracle remembers about you',
  usage: [
    '[list] [url]',
    'search <words> [url]',
    'add <text> [url]',
    'change <id> <text> [url]',
    'forget <id> [url]',
  ],
  async run(call) {
    const [action, ...rest] = call.args;
    return findAction(memoryActions, action)(rest, call);
  },
};

const memoryActions = {
  list: async ([url]: readonly string[], { output }: Call) => {
    const { client } = await openOracle(url, output);
    const { facts, total } = await client.memory.list({ limit: 100 });
    output.result({ facts, total }, describeFacts(facts));
    return 0;
  },
  search: async ([q, url]: readonly string[], { output }: Call) => {
    if (!q) throw new UsageError('Name the words to search for');
    const { client } = await openOracle(url, output);
    const { facts, total } = await client.memory.list({ q });
    output.result({ facts, total }, describeFacts(facts));
    return 0;
  },
  add: async ([text, url]: readonly string[], { output }: Call) => {
    if (!text) throw new UsageError('Name the fact');
    return report(await openOracle(url, output), (client) => client.memory.add(text), output);
  },
  change: async ([id, text, url]: readonly string[], { output }: Call) => {
    if (!id || !text) throw new UsageError('Name the id of a fact and its new text');
    const oracle = await openOracle(url, output);
    return report(oracle, (client) => client.memory.change(id, text), output);
  },
  forget: async ([id, url]: readonly string[], { output }: Call) => {
    if (!id) throw new UsageError('Name the id of a fact');
    const { client } = await openOracle(url, output);
    await client.memory.forget(id);
    output.result({ forgotten: id }, `Forgot ${id}`);
    return 0;
  },
};

async function report(
  { client }: OpenOracle,
  work: (client: OpenOracle['client']) => Promise<Fact>,
  output: Call['output'],
): Promise<number> {
  const fact = await work(client);
  output.result(fact, describeFacts([fact]));
  return 0;
}

const describeFacts = (facts: readonly Fact[]): string =>
  plainText(
    facts.length === 0
      ? 'Nothing is remembered'
      : table(facts.map(({ id, createdAt, text }) => [id, createdAt.slice(0, 10), text])),
  );

/** What RETENTION_DAYS deletes. */
export const retention: Command = {
  name: 'retention',
  summary: 'Show what RETENTION_DAYS deletes from your oracle',
  usage: ['[--days <number>]'],
  details:
    'Counts, and deletes nothing. Reads the store that the environment and .env in this folder name, whether the oracle runs or not.',
  options: {
    days: { type: 'string', value: 'number', summary: 'Instead of RETENTION_DAYS' },
  },
  async run({ options, output }) {
    const days = options.days === undefined ? undefined : Number(options.days);
    if (days !== undefined && !(Number.isInteger(days) && days >= 1))
      throw new UsageError('--days must be a whole number, 1 or more');
    const { showRetention } = await output.progress('Loading', loadHost());
    try {
      const preview = await showRetention(days);
      if (!preview) {
        output.result({ days: null }, 'RETENTION_DAYS is not set: everything is kept');
        return 0;
      }
      const { days: age, ...counts } = preview;
      const rows = Object.entries(counts).map(([name, count]) => [name, String(count)]);
      output.result(preview, `Older than ${age} days:\n${table(rows)}`);
      return 0;
    } catch (cause) {
      throw new CommandError((cause as Error).message, { cause });
    }
  },
};
