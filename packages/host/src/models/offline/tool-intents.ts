import { z } from 'zod';
import type { ModelTool, ModelToolResult } from '../model.js';
import { type Intent, type OfflineToolCall, withoutEnd } from './intent.js';

const VERBS = new Set(['use', 'call', 'run', 'invoke', 'try', 'execute', 'start']);
const VERB_REACH = 4;
// The lookbehind makes a match start at the first of several spaces, so that the search takes linear time.
const NEXT_STEP = /[,;.]?(?<!\s)\s+(?:and )?then\s+/i;

/** Calls the tools the user names ("use a and b"), one step after the other ("…, then use c"). */
export const callNamedTools: Intent = ({ said, step, tools }) => {
  const now = said.split(NEXT_STEP)[step];
  const calls = now ? findNamedCalls(now, tools) : [];
  return calls.length > 0 ? { calls } : undefined;
};

interface Word {
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

function findNamedCalls(said: string, tools: ReadonlyMap<string, ModelTool>): OfflineToolCall[] {
  const words = splitWords(said);
  const named = words.filter((word, i) => tools.has(word.text) && followsVerb(words, i));
  return named.flatMap(({ text, end }, i) => {
    const tool = tools.get(text);
    const rest = said.slice(end, named[i + 1]?.start).trim();
    const wanted = /(^|\s)and$/i.test(rest.slice(-4)) ? rest.slice(0, -3).trim() : rest;
    return tool ? [{ name: text, input: parseArguments(tool, wanted) }] : [];
  });
}

function splitWords(said: string): Word[] {
  return [...said.matchAll(/[\w.-]+/g)].flatMap(({ 0: found, index: start }) => {
    const text = withoutEnd(found, '.-');
    return text ? [{ text, start, end: start + text.length }] : [];
  });
}

function followsVerb(words: readonly Word[], index: number): boolean {
  const before = words.slice(Math.max(0, index - VERB_REACH), index);
  return before.some(({ text }) => VERBS.has(text.toLowerCase()));
}

type Arguments = Record<string, unknown>;

/** Parses a tool's arguments: as JSON, as `key: value` pairs, or the whole text for every required field. */
export function parseArguments(tool: ModelTool, said: string): Arguments {
  return findJson(said) ?? findPairs(tool, said) ?? fillRequired(tool, said);
}

/** Closing braces to try as the end of the object. */
const ATTEMPTS = 20;

/** Finds the first JSON object in a text. */
function findJson(text: string): Arguments | undefined {
  const start = text.indexOf('{');
  let end = text.lastIndexOf('}');
  for (let attempt = 0; start >= 0 && end > start && attempt < ATTEMPTS; attempt++) {
    const value = parseJson(text.slice(start, end + 1));
    if (value) return value;
    end = text.lastIndexOf('}', end - 1);
  }
  return undefined;
}

function parseJson(json: string): Arguments | undefined {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

interface FieldSchema {
  readonly type?: unknown;
  readonly enum?: unknown;
}

function readFields({ inputSchema }: ModelTool): Record<string, FieldSchema> {
  return (inputSchema.properties ?? {}) as Record<string, FieldSchema>;
}

const PAIR = /\b(\w+)\s*[:=]\s*("[^"]*"|[^,;\n]+)/g;

/** Returns only the named fields: the tool validates whether others are missing. */
function findPairs(tool: ModelTool, said: string): Arguments | undefined {
  const fields = readFields(tool);
  // A text may repeat a name very often; only its last value is converted.
  const values = new Map<string, string>();
  for (const [, key = '', value = ''] of said.matchAll(PAIR))
    if (Object.hasOwn(fields, key)) values.set(key, value.trim().replace(/^"|"$/g, ''));
  if (values.size === 0) return undefined;
  return Object.fromEntries(
    [...values].map(([key, value]) => [key, convert(fields[key] ?? {}, value)]),
  );
}

function fillRequired(tool: ModelTool, said: string): Arguments {
  const fields = readFields(tool);
  const { required } = tool.inputSchema;
  const names = new Set<string>(Array.isArray(required) ? required : []);
  const text = said.replace(/^(with|to|for|on|about|in|saying)\s+/i, '').trim();
  return Object.fromEntries([...names].map((name) => [name, convert(fields[name] ?? {}, text)]));
}

function convert(field: FieldSchema, text: string): unknown {
  if (Array.isArray(field.enum))
    return field.enum.find((option) => text.includes(String(option))) ?? field.enum[0];
  switch (field.type) {
    case 'number':
      return Number(/-?\d+(\.\d+)?/.exec(text)?.[0] ?? 0);
    case 'integer':
      return Math.trunc(Number(/-?\d+/.exec(text)?.[0] ?? 0));
    case 'boolean':
      return !/\b(false|no|off)\b/i.test(text);
    case 'array':
      return text
        .split(/,|\band\b/)
        .map((item) => item.trim())
        .filter(Boolean);
    case 'object':
      return {};
    default:
      return text;
  }
}

const RESULT_LENGTH = 400;

/** Reports the results of the tools. */
export const reportToolResults: Intent = ({ results, tools }) => {
  if (results.length === 0) return undefined;
  return { text: results.map((result) => report(result, tools)).join('\n') };
};

function report(
  { name, output, isError }: ModelToolResult,
  tools: ReadonlyMap<string, ModelTool>,
): string {
  const listed = name === 'list_capabilities' && reportCapabilities(output, tools.keys());
  if (listed) return listed;
  const value = parseResult(output);
  const result = shorten(describe(value).trim());
  if (isError) return `That did not work: ${name} said ${result || 'nothing'}`;
  if (!result) return `I have done it with ${name}.`;
  return isFields(value) ? `I used ${name}. ${result}` : `I have done it: ${result}`;
}

const shorten = (text: string): string =>
  text.length > RESULT_LENGTH ? `${text.slice(0, RESULT_LENGTH)}…` : text;

/** The value of a result, which is its text if it is not JSON. */
export function parseResult(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch {
    return output;
  }
}

const isFields = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Fields that say nothing to people. */
const FOR_PROGRAMS = /^id$|Id$|_id$|^(created|updated)_?at$/i;

/** A result in words, never as JSON: `{"rolls": [3, 4]}` becomes `Rolls: 3, 4.` */
function describe(value: unknown): string {
  if (!isFields(value)) return Array.isArray(value) ? describeList(value) : describeValue(value);
  const shown = Object.entries(value).filter(([name]) => !FOR_PROGRAMS.test(name));
  const sentences = shown.map(([name, field]) => {
    const words = name
      .replaceAll(/([a-z])([A-Z])|[_-]+/g, '$1 $2')
      .toLowerCase()
      .trim();
    const label = words.charAt(0).toUpperCase() + words.slice(1);
    return `${label}: ${Array.isArray(field) ? describeList(field) : describeValue(field)}`;
  });
  return sentences.map((sentence) => `${withoutEnd(sentence, '.')}.`).join(' ');
}

function describeList(values: readonly unknown[]): string {
  if (values.length === 0) return 'none';
  if (!values.some(isFields)) return values.map(describeValue).join(', ');
  return `\n\n${values.map((value) => `- ${describeValue(value)}`).join('\n')}`;
}

/** Of an object that has a text, that text. */
function describeValue(value: unknown): string {
  if (Array.isArray(value)) return value.map(describeValue).join(', ');
  if (!isFields(value)) return value === null ? 'none' : String(value);
  if (typeof value.text === 'string') return value.text;
  const fields = Object.entries(value).map(([name, field]) => `${name} ${describeValue(field)}`);
  return fields.join(', ');
}

const Listed = z.object({
  capabilities: z.array(
    z.object({
      name: z.string(),
      title: z.string(),
      summary: z.string(),
      isLoaded: z.boolean(),
    }),
  ),
});

/** Describes the result of `list_capabilities`; undefined if it cannot be parsed. */
function reportCapabilities(output: string, tools: Iterable<string>): string | undefined {
  const listed = read(output);
  if (!listed) return undefined;
  const usable = [...tools].map((name) => `\`${name}\``).join(', ');
  const more = listed.capabilities
    .filter(({ isLoaded }) => !isLoaded)
    .map(({ name, title, summary }) => `- ${title}: ${summary} Say “use load_capability ${name}”.`);
  const loadable =
    more.length > 0 ? `\n\nThere is more that can be loaded:\n\n${more.join('\n')}` : '';
  return `I use these tools when you name them, as in “use list_capabilities”: ${usable}.${loadable}`;
}

function read(output: string): z.infer<typeof Listed> | undefined {
  try {
    return Listed.safeParse(JSON.parse(output)).data;
  } catch {
    return undefined;
  }
}

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
