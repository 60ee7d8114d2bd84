import type { SearchResult } from '@sibyl/client';
import { type Command, UsageError } from '../command.js';
import { openOracle } from '../environment.js';
import { type Output, plainText } from '../terminal.js';

/** Finds messages and titles of the user's sessions. */
export const search: Command = {
  name: 'search',
  summary: 'Search your messages at an oracle',
  usage: ['<text> [url] [--limit <number>] [--offset <number>]'],
  details:
    'Finds messages and titles with all words, the best first. "Quoted words" must follow each other. Continue a session that it found with "sibyl chat --session <id>".',
  options: {
    limit: { type: 'string', value: 'number', summary: 'How many results; default 20, at most 50' },
    offset: { type: 'string', value: 'number', summary: 'How many results to skip; default 0' },
  },
  async run({ args, options, output }) {
    const [text, url] = args;
    if (!text) throw new UsageError('Name what to search for');
    const page = { limit: readNumber(options.limit, 20), offset: readNumber(options.offset, 0) };
    const { client } = await openOracle(url, output);
    try {
      const found = await output.progress('Searching', client.search(text, page));
      const lines = found.results.map((result) => formatResult(result, output));
      output.result(found, lines.length > 0 ? lines.join('\n\n') : 'Nothing found');
      if (found.hasMore) output.note(`There is more: --offset ${page.offset + page.limit}`);
      return 0;
    } finally {
      client.close();
    }
  },
};

function readNumber(given: string | boolean | undefined, standard: number): number {
  const text = String(given ?? standard);
  if (/^\d{1,4}$/.test(text)) return Number(text);
  throw new UsageError('--limit and --offset are whole numbers');
}

function formatResult({ title, sessionId, snippet, createdAt }: SearchResult, output: Output) {
  const date = createdAt ? `, ${new Date(createdAt).toLocaleString()}` : '';
  const head = output.dim(`${plainText(title)}, session ${sessionId}${date}`);
  return `${head}\n${plainText(snippet.replaceAll(/\s+/g, ' '))}`;
}
