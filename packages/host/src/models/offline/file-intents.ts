import { z } from 'zod';
import type { Intent } from './intent.js';

const ABOUT_FILES =
  /\b(files?|documents?|pdfs?|pages?|spreadsheets?|sheets?|reports?|attach(ed|ments?))\b/i;
const PAGE = /\b(?:page|sheet|paragraph|line)\s+(\d{1,6})\b/i;
/** How the host describes an attached file that is too long to show. */
const LONG_FILE = /^\[The file .* \(id ([\w-]+)\) is too long/m;

/** Looks questions about files up, once: the named page of an attached file, or passages with the same words. */
export const searchFiles: Intent = ({ said, attached, step, tools }) => {
  if (step > 0 || !tools.has('search_files')) return undefined;
  const fileId = LONG_FILE.exec(attached)?.[1];
  const position = Number(PAGE.exec(said)?.[1] ?? 0);
  if (fileId && position > 0 && tools.has('read_file'))
    return { calls: [{ name: 'read_file', input: { fileId, position } }] };
  if (!fileId && !ABOUT_FILES.test(said)) return undefined;
  const query = said.slice(0, 1000);
  return { calls: [{ name: 'search_files', input: { query, ...(fileId && { fileId }) } }] };
};

const Passage = z.object({
  source: z.int(),
  file: z.string(),
  position: z.string(),
  text: z.string(),
});

/** The best passage is the first. */
const Found = z.object({ passages: z.tuple([Passage], z.unknown()) });

const QUOTE_LENGTH = 300;

/** Quotes the best passage, with its source. */
export const reportFilePassages: Intent = ({ results }) => {
  const [result] = results;
  if (result?.name !== 'search_files' && result?.name !== 'read_file') return undefined;
  const { data } = Found.safeParse(parse(result.output));
  if (!data) return undefined;
  const [{ source, file, position, text }] = data.passages;
  const quote = text.length > QUOTE_LENGTH ? `${text.slice(0, QUOTE_LENGTH)}…` : text;
  return { text: `${file}, ${position}: “${quote}” [${source}]` };
};

function parse(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    return undefined;
  }
}
