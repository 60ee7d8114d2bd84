import { writeFile } from 'node:fs/promises';
import type { Message, SearchResult, Session } from '@sibyl/client';
import { type Call, type Command, findAction, UsageError } from '../command.js';
import { type OpenOracle, openOracle } from '../environment.js';
import { printMessage } from '../reply-printer.js';
import { type Output, plainText, table } from '../terminal.js';

/** The user's conversations. */
export const sessions: Command = {
  name: 'sessions',
  summary: 'List, show, rename, delete, export or search your conversations',
  usage: [
    '[list] [url] [--limit <number>] [--offset <number>]',
    'show <id> [url]',
    'rename <id> <title> [url]',
    'delete <id> [url]',
    'export <id> [url] [--out <file>]',
    'search <text> [url] [--limit <number>] [--offset <number>]',
  ],
  details: [
    'Continue a session with "sibyl chat --session <id>". "export" writes one conversation as Markdown, with --json as JSON; "sibyl export" saves everything.',
    '"search" finds messages and titles with all words, the best first. "Quoted words" must follow each other.',
  ].join('\n'),
  options: {
    limit: {
      type: 'string',
      value: 'number',
      summary: 'With list and search: how many; default 20, at most 100, with search 50',
    },
    offset: {
      type: 'string',
      value: 'number',
      summary: 'With list and search: how many to skip; default 0',
    },
    out: { type: 'string', value: 'file', summary: 'With export: write it to this file' },
  },
  async run(call) {
    const [action = 'list', ...rest] = call.args;
    const run = findAction(actions, action);
    // Before the oracle is asked, so that mistakes are reported first.
    const subjects = rest.splice(0, subjectCounts[action] ?? 1);
    if (subjects.length < (subjectCounts[action] ?? 1))
      throw new UsageError(`Name ${missing[action] ?? 'the session: its id, which "list" shows'}`);
    const page = readPage(call);
    const oracle = await openOracle(rest[0], call.output);
    try {
      return await run({ oracle, call, page }, ...(subjects as [string, string]));
    } finally {
      oracle.client.close();
    }
  },
};

const subjectCounts: Readonly<Record<string, number>> = { list: 0, rename: 2 };
const missing: Readonly<Record<string, string>> = {
  rename: 'the session and its new title',
  search: 'what to search for',
};

interface Page {
  readonly limit: number;
  readonly offset: number;
}

interface Task {
  readonly oracle: OpenOracle;
  readonly call: Call;
  readonly page: Page;
}

const actions = { list, show, rename, delete: remove, export: exportSession, search };

function readPage({ options }: Call): Page {
  const read = (name: 'limit' | 'offset', standard: number) => {
    const text = String(options[name] ?? standard);
    if (/^\d{1,6}$/.test(text)) return Number(text);
    throw new UsageError(`--${name} must be a whole number`);
  };
  return { limit: read('limit', 20), offset: read('offset', 0) };
}

async function list({ oracle: { client }, call: { output }, page }: Task): Promise<number> {
  const found = await client.sessions.list(page);
  const rows = found.sessions.map(({ sessionId, title, lastUpdatedAt }) => [
    sessionId,
    new Date(lastUpdatedAt).toLocaleString(),
    title,
  ]);
  output.result(found, plainText(rows.length > 0 ? table(rows) : 'You have no sessions'));
  const next = page.offset + found.sessions.length;
  if (next < found.total) output.note(`${next} of ${found.total}; the next ones: --offset ${next}`);
  return 0;
}

async function show({ oracle, call: { output } }: Task, id: string): Promise<number> {
  const messages = await oracle.client.messages.list(id);
  if (output.format === 'json') {
    output.result({ sessionId: id, messages }, '');
    return 0;
  }
  for (const message of messages) {
    const name = message.type === 'human' ? 'You' : oracle.name;
    const time = output.dim(new Date(message.createdAt).toLocaleString());
    output.write(`${output.bold(plainText(name))}  ${time}\n`);
    printMessage(message, output);
    output.write('\n');
  }
  if (messages.length === 0) output.note('This session has no messages yet');
  return 0;
}

async function rename(
  { oracle: { client }, call: { output } }: Task,
  id: string,
  title: string,
): Promise<number> {
  const session = await client.sessions.rename(id, title);
  output.result(session, plainText(`Renamed to ${session.title}`));
  return 0;
}

async function remove({ oracle: { client }, call: { output } }: Task, id: string): Promise<number> {
  await client.sessions.delete(id);
  output.result({ ok: true, sessionId: id }, 'Deleted');
  return 0;
}

async function exportSession({ oracle, call }: Task, id: string): Promise<number> {
  const { output, options } = call;
  const messages = await oracle.client.messages.list(id);
  const session = await findSession(oracle, id);
  const text =
    output.format === 'json'
      ? `${JSON.stringify({ session, messages }, null, 2)}\n`
      : toMarkdown(messages, session?.title ?? 'Untitled', oracle.name);
  if (options.out === undefined) output.write(output.isStyled ? plainText(text) : text);
  else {
    await writeFile(String(options.out), text, { flag: 'wx', mode: 0o600 });
    output.note(`Written to ${options.out}`);
  }
  return 0;
}

const PAGE = 100;

async function findSession({ client }: OpenOracle, id: string): Promise<Session | undefined> {
  for (let offset = 0; ; offset += PAGE) {
    const page = await client.sessions.list({ limit: PAGE, offset });
    const session = page.sessions.find(({ sessionId }) => sessionId === id);
    if (session || offset + PAGE >= page.total) return session;
  }
}

function toMarkdown(messages: readonly Message[], title: string, oracle: string): string {
  const blocks = messages.map(({ type, createdAt, content, attachments = [], error }) => {
    const files = attachments.map(({ filename }) => `- ${filename}`);
    return [
      `## ${type === 'human' ? 'You' : oracle}, ${createdAt}`,
      content,
      files.join('\n'),
      error ? `> ${error.message}` : '',
    ]
      .filter(Boolean)
      .join('\n\n');
  });
  return `${[`# ${title}`, ...blocks].join('\n\n')}\n`;
}

async function search(
  { oracle: { client }, call: { output }, page }: Task,
  text: string,
): Promise<number> {
  const found = await output.progress('Searching', client.search(text, page));
  const lines = found.results.map((result) => formatResult(result, output));
  output.result(found, lines.length > 0 ? lines.join('\n\n') : 'Nothing found');
  if (found.hasMore) output.note(`There is more: --offset ${page.offset + page.limit}`);
  return 0;
}

function formatResult({ title, sessionId, snippet, createdAt }: SearchResult, output: Output) {
  const date = createdAt ? `, ${new Date(createdAt).toLocaleString()}` : '';
  const head = output.dim(`${plainText(title)}, session ${sessionId}${date}`);
  return `${head}\n${plainText(snippet.replaceAll(/\s+/g, ' '))}`;
}
