import { z } from 'zod';
import type { ModelCall, ModelMessage, ModelTool, ModelToolResult } from '../model.js';

/** The parts of a model call that the rules use. */
interface OfflineRequest {
  readonly system: string;
  readonly messages: readonly ModelMessage[];
  /** The newest message of the user, without its files: what these say is not what the user wants. */
  readonly said: string;
  /** What the host says about its files, and what they say. */
  readonly attached: string;
  /** The note of the host about it. */
  readonly note: string;
  readonly fileCount: number;
  /** The number of tool messages since then. */
  readonly step: number;
  /** The results in the last message, if it is a tool message. */
  readonly results: readonly ModelToolResult[];
  readonly tools: ReadonlyMap<string, ModelTool>;
  readonly now: Date;
}

interface OfflineToolCall {
  readonly name: string;
  readonly input: Readonly<Record<string, unknown>>;
}

export interface OfflineReply {
  readonly text?: string;
  readonly calls?: readonly OfflineToolCall[];
  /** Delay between words. */
  readonly pauseMs?: number;
}

/** One rule: returns a reply if the request matches. */
type Intent = (request: OfflineRequest) => OfflineReply | undefined;

/** Extracts the parts of a call that the rules use. */
export function readRequest({ system, messages, tools }: ModelCall, now: Date): OfflineRequest {
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const question = messages[asked];
  const last = messages.at(-1);
  const [own = '', ...attached] = question ? listTexts(question) : [];
  return {
    system,
    messages,
    said: own.trim(),
    attached: attached.join('\n'),
    note: (question?.role === 'user' && question.note) || '',
    fileCount: question ? countFiles(question) : 0,
    step: messages.slice(asked + 1).filter(({ role }) => role === 'tool').length,
    results: last?.role === 'tool' ? last.results : [],
    tools: new Map(tools.map((tool) => [tool.name, tool])),
    now,
  };
}

/** Returns the text of a message without tool results. */
export function getText(message: ModelMessage): string {
  return message.role === 'assistant' ? message.text : listTexts(message).join('\n');
}

function listTexts(message: ModelMessage): string[] {
  if (message.role !== 'user') return [];
  const { content } = message;
  if (typeof content === 'string') return [content];
  return content.flatMap((part) => (part.type === 'text' ? part.text : []));
}

const countFiles = (message: ModelMessage): number =>
  message.role === 'user' && typeof message.content !== 'string'
    ? message.content.filter(({ type }) => type === 'file').length
    : 0;

/** Removes these characters from the end of a text; a regular expression would take quadratic time. */
export function withoutEnd(text: string, characters: string): string {
  let end = text.length;
  while (end > 0 && characters.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}

const TITLE_WORDS = 6;
const SUMMARY_LENGTH = 600;
const SPEAKER = /^(user|human|assistant|ai|oracle)\s*:\s*/i;
// A normal turn may also mention titles, but it has tools or a longer prompt.
const UTILITY_PROMPT_LENGTH = 1500;

/** What the system prompt asks for: as a title the first words of the conversation, as a summary the first sentence of every message. */
const titleOrSummarize: Intent = ({ system, messages, tools, results }) => {
  if (tools.size > 0 || results.length > 0 || system.length > UTILITY_PROMPT_LENGTH)
    return undefined;
  const texts = messages.map(getText).filter(Boolean);
  if (/title/i.test(system)) return { text: makeTitle(texts) };
  return /summary|summari[sz]e/i.test(system) ? { text: makeSummary(texts) } : undefined;
};

function makeTitle([first = '']: readonly string[]): string {
  const words = splitLines(first)[0]?.split(/\s+/) ?? [];
  return withoutEnd(words.slice(0, TITLE_WORDS).join(' '), ' .,;:!?') || 'Untitled';
}

function makeSummary(texts: readonly string[]): string {
  const sentences = texts.flatMap(splitLines).map((line) => line.split(/(?<=[.!?])\s/)[0]);
  return sentences.join(' ').slice(0, SUMMARY_LENGTH).trim() || 'Nothing was said.';
}

function splitLines(text: string): string[] {
  const lines = text.split('\n').map((line) => line.trim().replace(SPEAKER, ''));
  return lines.filter(Boolean);
}

const VERB = /\b(use|call|run|invoke|try|execute|start)\b/i;
const VERBS = new Set(['use', 'call', 'run', 'invoke', 'try', 'execute', 'start']);
const VERB_REACH = 4;
// The lookbehind makes a match start at the first of several spaces, so that the search takes linear time.
const NEXT_STEP = /[,;.]?(?<!\s)\s+(?:and )?then\s+/i;

/** Calls the tools the user names ("use a and b"), one step after the other ("…, then use c"). */
const callNamedTools: Intent = ({ said, step, tools }) => {
  if (!VERB.test(said)) return undefined;
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
function parseArguments(tool: ModelTool, said: string): Arguments {
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
const reportResults: Intent = ({ results, tools }) => {
  const [first] = results;
  if (!first) return undefined;
  const value = parseResult(first.output);
  const known =
    describePassage(first, value) ?? (results.length === 1 && describeFacts(first, value));
  return { text: known || results.map((result) => report(result, tools)).join('\n') };
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
function parseResult(output: string): unknown {
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
  const listed = Listed.safeParse(parseResult(output)).data;
  if (!listed) return undefined;
  const usable = [...tools].map((name) => `\`${name}\``).join(', ');
  const more = listed.capabilities
    .filter(({ isLoaded }) => !isLoaded)
    .map(({ name, title, summary }) => `- ${title}: ${summary} Say “use load_capability ${name}”.`);
  const loadable =
    more.length > 0 ? `\n\nThere is more that can be loaded:\n\n${more.join('\n')}` : '';
  return `I use these tools when you name them, as in “use list_capabilities”: ${usable}.${loadable}`;
}

const ABOUT_FILES =
  /\b(files?|documents?|pdfs?|pages?|spreadsheets?|sheets?|reports?|attach(ed|ments?))\b/i;
const PAGE = /\b(?:page|sheet|paragraph|line)\s+(\d{1,6})\b/i;
/** How the host describes an attached file that is too long to show. */
const LONG_FILE = /^\[The file .* \(id ([\w-]+)\) is too long/m;

/** Looks questions about files up, once: the named page of an attached file, or passages with the same words. */
const searchFiles: Intent = ({ said, attached, step, tools }) => {
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

const PASSAGE_LENGTH = 300;

/** Quotes the best passage, with its source. */
function describePassage({ name }: ModelToolResult, value: unknown): string | undefined {
  if (name !== 'search_files' && name !== 'read_file') return undefined;
  const { data } = Found.safeParse(value);
  if (!data) return undefined;
  const [{ source, file, position, text }] = data.passages;
  const quote = text.length > PASSAGE_LENGTH ? `${text.slice(0, PASSAGE_LENGTH)}…` : text;
  return `${file}, ${position}: “${quote}” [${source}]`;
}

type PreferenceChange = Readonly<Record<string, string | null>>;

const LASTING = /\b(from now on|from here on|always|in (the )?future|every time|each time)\b,?/i;
const ONE_TURN: readonly RegExp[] = [
  /\b(once|for now|right now)\b/i,
  /\bthis (time|answer|reply|question|message|one|turn)\b/i,
  /\b(answer|say|write|translate) this\b/i,
  /\b(a|an|one) (\w+ )?(answer|reply|response|summary)\b/i,
];

/** Finds lasting preferences; undefined if they are meant for one turn only. */
function findPreferences(said: string): PreferenceChange | undefined {
  if (ONE_TURN.some((mark) => mark.test(said))) return undefined;
  const isLasting = LASTING.test(said);
  const found: PreferenceChange = {
    ...findLanguage(said),
    ...findNames(said),
    ...findStyle(said),
    // Only if the user says so: most requests for a format are for one answer.
    ...(isLasting && findFormat(said)),
    ...findCleared(said),
  };
  if (Object.keys(found).length > 0) return found;
  return isLasting ? findInstruction(said) : undefined;
}

function findLanguage(said: string): PreferenceChange | undefined {
  const asks = /(?<!\bI )\b(answer|reply|respond|speak|talk|switch|write (to )?me)\b/i.test(said);
  if (!asks || isQuestion(said)) return undefined;
  const name = findLanguageName(said);
  return name ? { language: name } : undefined;
}

const NAME = `["'“]?([\\p{L}][\\p{L}\\p{N}'’-]*(?: \\p{Lu}[\\p{L}\\p{N}'’-]*)*)`;
const NAMES = {
  userName: new RegExp(`\\bcall me ${NAME}`, 'iu'),
  agentName: new RegExp(
    `\\b(?:your name is|your name shall be|change your name to|you are called|(?:call|name) yourself|(?:i'll|i will|let me) call you) ${NAME}`,
    'iu',
  ),
};
const NOT_A_NAME = /^(when|if|back|later|tomorrow|a|an|the)$/i;

function findNames(said: string): PreferenceChange {
  const names: Record<string, string> = {};
  for (const [field, pattern] of Object.entries(NAMES)) {
    const words = pattern.exec(said)?.[1]?.split(' ') ?? [];
    // The name ends before the first lower-case word, such as in "from now on".
    const end = words.findIndex((word, i) => i > 0 && !/^\p{Lu}/u.test(word));
    const proper = end === -1 ? words : words.slice(0, end);
    if (proper[0] && !NOT_A_NAME.test(proper[0])) names[field] = proper.join(' ');
  }
  return names;
}

/** Requests for the style of future answers, not of a poem or a plan. */
const STYLE_REQUESTS: readonly RegExp[] = [
  LASTING,
  /(^|[.,;:!]\s*|\b(please|you|and|should)\s+)(be|sound|stay)\b/i,
  /\b(answers|replies|responses|tone|style|keep it)\b/i,
  /(?<!\bI )\b(answer|reply|respond|speak|talk)\b/i,
];

const STYLES: Readonly<Record<string, Readonly<Record<string, RegExp>>>> = {
  length: {
    concise: /\b(brief|briefly|concise|concisely|short|shorter|terse)\b/i,
    balanced: /\bbalanced\b/i,
    detailed: /\b(detailed|in detail|longer|thorough|in depth)\b/i,
  },
  formality: {
    casual: /\b(casual|casually|informal|informally)\b/i,
    friendly: /\bfriendl(y|ier)\b/i,
    neutral: /\bneutral\b/i,
    professional: /\bprofessional(ly)?\b/i,
    formal: /\b(formal|formally)\b/i,
    technical: /\b(technical|technically)\b/i,
  },
  tone: Object.fromEntries(
    ['warm', 'cheerful', 'playful', 'serious', 'humorous', 'direct', 'calm', 'enthusiastic'].map(
      (word) => [word, new RegExp(`\\b${word}\\b`, 'i')],
    ),
  ),
};

function findStyle(said: string): PreferenceChange | undefined {
  const asks = STYLE_REQUESTS.some((request) => request.test(said));
  if (!asks || isQuestion(said)) return undefined;
  const style: Record<string, string> = {};
  for (const [field, options] of Object.entries(STYLES)) {
    const value = Object.keys(options).find((option) => options[option]?.test(said));
    if (value) style[field] = value;
  }
  return style;
}

function findFormat(said: string): PreferenceChange | undefined {
  const found =
    /\b(bullet points|bullets|tables?|numbered lists?|plain text|markdown|prose)\b/i.exec(said);
  return found ? { format: found[0].toLowerCase() } : undefined;
}

function findCleared(said: string): PreferenceChange | undefined {
  const found = /\b(?:forget|clear|reset|drop) my (language|tone|format|formality|length)\b/i.exec(
    said,
  );
  return found?.[1] ? { [found[1].toLowerCase()]: null } : undefined;
}

function findInstruction(said: string): PreferenceChange | undefined {
  if (isQuestion(said)) return undefined;
  const wish = said.replace(LASTING, '').replace(/\s+/g, ' ').trim();
  return wish ? { customInstructions: wish } : undefined;
}

function isQuestion(said: string): boolean {
  return /\?\s*$/.test(said) && !/^(can|could|will|would) you\b/i.test(said);
}

const CODES =
  'af am ar bg bn ca cs cy da de el en es et eu fa fi fr ga gl ha he hi hr hu id ig it ja ko lt lv ms nb nl pl ps pt ro ru sk sl so sr sv sw ta te th tr uk ur vi xh yo zh zu';

/** Created on first use: reading them from ICU would slow down startup. */
let names: ReadonlyMap<string, string> | undefined;

function namesByLowerCase(): ReadonlyMap<string, string> {
  const english = new Intl.DisplayNames('en', { type: 'language' });
  const all = CODES.split(' ').map((code) => english.of(code) ?? code);
  return new Map(all.map((name) => [name.toLowerCase(), name]));
}

/** Finds the first language that a text names in English. */
function findLanguageName(text: string): string | undefined {
  names ??= namesByLowerCase();
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) {
    const name = names.get(word);
    if (name) return name;
  }
  return undefined;
}

/** Stores how the user wants to be answered. */
const changePreferences: Intent = ({ said, tools }) => {
  const tool = tools.get('set_user_preferences');
  const change = tool && findPreferences(said);
  if (!change) return undefined;
  const input = onlyKnown(change, tool);
  return Object.keys(input).length > 0 ? { calls: [{ name: tool.name, input }] } : undefined;
};

function onlyKnown(change: Readonly<Record<string, unknown>>, { inputSchema }: ModelTool) {
  const { properties } = inputSchema;
  if (typeof properties !== 'object' || properties === null) return change;
  return Object.fromEntries(Object.entries(change).filter(([key]) => key in properties));
}

const FACTS: readonly RegExp[] = [
  /\bremember (?:that )?(.+)/is,
  /\b(I (?:work|live|study|teach|speak|come from|am based|was born)\b.+)/is,
  /\b(I(?:'m| am) (?:a|an|the|from|based)\b.+)/is,
  /\b(my (?:name|birthday|job|team|company|wife|husband|partner|daughter|son|dog|cat) is\b.+)/is,
];

const ASKED = /\bwhat do you (?:know|remember) about (?:my )?(.+)/is;

/** Looks up what was remembered about the user. */
const recallFacts: Intent = ({ said, tools, step }) => {
  const about = ASKED.exec(said)?.[1];
  if (!about || step > 0 || !tools.has('recall')) return undefined;
  const query = withoutEnd(about.trim(), '?.! ').slice(0, 500);
  return query ? { calls: [{ name: 'recall', input: { query } }] } : undefined;
};

const Remembered = z.object({ text: z.string() });
const Recalled = z.object({ facts: z.array(z.object({ text: z.string() })) });

/** Says what was stored or found. */
function describeFacts({ name, isError }: ModelToolResult, value: unknown): string | undefined {
  if (isError) return undefined;
  const stored = name === 'remember' ? Remembered.safeParse(value).data : undefined;
  if (stored) return `I will remember: ${stored.text}`;
  const facts = name === 'recall' ? Recalled.safeParse(value).data?.facts : undefined;
  if (!facts) return undefined;
  if (facts.length === 0) return 'I do not remember anything about that.';
  return `I remember:\n\n${facts.map(({ text }) => `- ${text}`).join('\n')}`;
}

/** Stores a fact about the user. */
const rememberFact: Intent = ({ said, tools }) => {
  const tool = tools.get('remember');
  if (!tool || said.endsWith('?')) return undefined;
  const fact = FACTS.map((pattern) => pattern.exec(said)?.[1]).find(Boolean);
  if (!fact) return undefined;
  const text = withoutEnd(fact.trim(), '.!');
  return { calls: [{ name: tool.name, input: parseArguments(tool, text) }] };
};

const COUNT_LIMIT = 1000;
const SLOW_PAUSE_MS = 50;
const QUOTE_LENGTH = 200;

/** Answers with the time from the note of the message, otherwise from the clock. */
const answerTime: Intent = ({ said, note, now }) => {
  if (!hasInOrder(said, /\bwhat('s| is)?\b/i, /\b(time|day|date)\b/i)) return undefined;
  const [, time] = /^\[Current time: (.+)\]$/m.exec(note) ?? /^\[Sent: (.+)\]$/m.exec(note) ?? [];
  return { text: `It is ${time ?? `${now.toISOString()} (UTC)`}.` };
};

/** Whether a line matches two patterns in this order; a single pattern would take quadratic time on long lines. */
function hasInOrder(said: string, first: RegExp, second: RegExp): boolean {
  for (const line of said.split('\n')) {
    const found = first.exec(line);
    if (found && second.test(line.slice(found.index + found[0].length))) return true;
  }
  return false;
}

/** Lists the available tools. */
const listCapabilities: Intent = ({ said, tools }) => {
  const asks =
    /\bwhat (can|do) you do\b|^help\W*$/i.test(said) ||
    hasInOrder(said, /\b(list|show|what)\b/i, /\b(capabilities|tools|plugins)\b/i);
  if (!asks) return undefined;
  if (tools.has('list_capabilities')) return { calls: [{ name: 'list_capabilities', input: {} }] };
  const names = [...tools.keys()].join(', ');
  return { text: names ? `I can use these tools: ${names}.` : 'I have no tools here.' };
};

/** Counts, for long or slow answers without a real model. */
const count: Intent = ({ said }) => {
  const found = /\bcount( slowly)? to (\d+)\b/i.exec(said);
  if (!found) return undefined;
  const length = Math.min(Number(found[2]), COUNT_LIMIT);
  const text = Array.from({ length }, (_, i) => i + 1).join(' ');
  return found[1] ? { text, pauseMs: SLOW_PAUSE_MS } : { text };
};

/** Explains what this model is and how to configure a better one. */
const introduce: Intent = ({ said, fileCount }) => {
  const quote = said.length > QUOTE_LENGTH ? `${said.slice(0, QUOTE_LENGTH)}…` : said;
  const files = fileCount > 0 ? ` I cannot read the ${fileCount} file(s) that came with it.` : '';
  const heard = quote ? `You said: “${quote}”.${files}\n\n` : '';
  return { text: `${heard}${INTRODUCTION}` };
};

const INTRODUCTION = [
  'I am the built-in offline model: a few rules, not a language model, made for the first five minutes and for tests.',
  'I can change your preferences ("answer in Spanish from now on"), use a tool you name ("use list_capabilities"), give the time and count.',
  'For real answers, the operator of this oracle sets OPENAI_API_KEY, ANTHROPIC_API_KEY or GOOGLE_GENERATIVE_AI_API_KEY, or MODEL=openai-compatible/<model-id> with MODEL_BASE_URL, and starts it again.',
].join(' ');

/** All rules; the first reply is used, and the last rule always has one. */
const intents: readonly Intent[] = [
  titleOrSummarize,
  callNamedTools,
  searchFiles,
  reportResults,
  listCapabilities,
  changePreferences,
  recallFacts,
  rememberFact,
  answerTime,
  count,
  introduce,
];

export function replyTo(request: OfflineRequest): OfflineReply {
  for (const intent of intents) {
    const reply = intent(request);
    if (reply) return reply;
  }
  return {};
}

/** The tools that rules call although no message names them. */
const USUAL_TOOLS = ['remember', 'recall', 'set_user_preferences'];

/** Whether the rules do what a message asks for, given the tools that it needs. */
export function understands(message: string): boolean {
  const names = [...USUAL_TOOLS, ...(message.match(/\b\w+_\w+\b/g) ?? [])];
  const tools = names.map((name) => ({ name, description: '', inputSchema: {} }));
  const messages = [{ role: 'user', content: message }] as const;
  const signal = AbortSignal.timeout(0);
  const request = readRequest({ system: '', messages, tools, signal }, new Date());
  return intents.some((intent) => intent !== introduce && intent(request) !== undefined);
}
