import { z } from 'zod';
import type { ModelTool } from '../model.js';
import { type Intent, withoutEnd } from './intent.js';
import { parseArguments, parseResult } from './tool-intents.js';

type PreferenceChange = Readonly<Record<string, string | null>>;
type PreferenceRule = (said: string) => PreferenceChange | undefined;

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
  const found: PreferenceChange = Object.assign({}, ...rules.map((rule) => rule(said)));
  if (Object.keys(found).length > 0) return found;
  return customInstruction(said);
}

const language: PreferenceRule = (said) => {
  const asks = /(?<!\bI )\b(answer|reply|respond|speak|talk|switch|write (to )?me)\b/i.test(said);
  if (!asks || isQuestion(said)) return undefined;
  const name = findLanguage(said);
  return name ? { language: name } : undefined;
};

const NAME = `["'“]?([\\p{L}][\\p{L}\\p{N}'’-]*(?: \\p{Lu}[\\p{L}\\p{N}'’-]*)*)`;
const userNameIn = new RegExp(`\\bcall me ${NAME}`, 'iu');
const agentNameIn = new RegExp(
  `\\b(?:your name is|your name shall be|change your name to|you are called|(?:call|name) yourself|(?:i'll|i will|let me) call you) ${NAME}`,
  'iu',
);
const NOT_A_NAME = /^(when|if|back|later|tomorrow|a|an|the)$/i;

const userName: PreferenceRule = (said) => readName('userName', userNameIn.exec(said));
const agentName: PreferenceRule = (said) => readName('agentName', agentNameIn.exec(said));

function readName(field: string, match: RegExpExecArray | null): PreferenceChange | undefined {
  const words = match?.[1]?.split(' ') ?? [];
  // The name ends before the first lower-case word, such as in "from now on".
  const end = words.findIndex((word, i) => i > 0 && !/^\p{Lu}/u.test(word));
  const proper = end === -1 ? words : words.slice(0, end);
  const [first] = proper;
  return first && !NOT_A_NAME.test(first) ? { [field]: proper.join(' ') } : undefined;
}

/** Requests for the style of future answers, not of a poem or a plan. */
const STYLE_REQUESTS: readonly RegExp[] = [
  LASTING,
  /(^|[.,;:!]\s*|\b(please|you|and|should)\s+)(be|sound|stay)\b/i,
  /\b(answers|replies|responses|tone|style|keep it)\b/i,
  /(?<!\bI )\b(answer|reply|respond|speak|talk)\b/i,
];

const lengths: Readonly<Record<string, RegExp>> = {
  concise: /\b(brief|briefly|concise|concisely|short|shorter|terse)\b/i,
  balanced: /\bbalanced\b/i,
  detailed: /\b(detailed|in detail|longer|thorough|in depth)\b/i,
};
const formalities: Readonly<Record<string, RegExp>> = {
  casual: /\b(casual|casually|informal|informally)\b/i,
  friendly: /\bfriendl(y|ier)\b/i,
  neutral: /\bneutral\b/i,
  professional: /\bprofessional(ly)?\b/i,
  formal: /\b(formal|formally)\b/i,
  technical: /\b(technical|technically)\b/i,
};
const tones: Readonly<Record<string, RegExp>> = Object.fromEntries(
  ['warm', 'cheerful', 'playful', 'serious', 'humorous', 'direct', 'calm', 'enthusiastic'].map(
    (word) => [word, new RegExp(`\\b${word}\\b`, 'i')],
  ),
);

const length: PreferenceRule = (said) => readStyle('length', lengths, said);
const formality: PreferenceRule = (said) => readStyle('formality', formalities, said);
const tone: PreferenceRule = (said) => readStyle('tone', tones, said);

function readStyle(
  field: string,
  options: Readonly<Record<string, RegExp>>,
  said: string,
): PreferenceChange | undefined {
  const asks = STYLE_REQUESTS.some((request) => request.test(said));
  if (!asks || isQuestion(said)) return undefined;
  const value = Object.keys(options).find((option) => options[option]?.test(said));
  return value ? { [field]: value } : undefined;
}

/** A format is lasting only if the user says so: most such requests are for one answer. */
const format: PreferenceRule = (said) => {
  if (!LASTING.test(said)) return undefined;
  const found =
    /\b(bullet points|bullets|tables?|numbered lists?|plain text|markdown|prose)\b/i.exec(said);
  return found ? { format: found[0].toLowerCase() } : undefined;
};

const clearing: PreferenceRule = (said) => {
  const found = /\b(?:forget|clear|reset|drop) my (language|tone|format|formality|length)\b/i.exec(
    said,
  );
  return found?.[1] ? { [found[1].toLowerCase()]: null } : undefined;
};

const rules: readonly PreferenceRule[] = [
  language,
  userName,
  agentName,
  length,
  formality,
  tone,
  format,
  clearing,
];

function customInstruction(said: string): PreferenceChange | undefined {
  if (!LASTING.test(said) || isQuestion(said)) return undefined;
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
function findLanguage(text: string): string | undefined {
  names ??= namesByLowerCase();
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) {
    const name = names.get(word);
    if (name) return name;
  }
  return undefined;
}

/** Stores how the user wants to be answered. */
export const changePreferences: Intent = ({ said, tools }) => {
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
export const recallFacts: Intent = ({ said, tools, step }) => {
  const about = ASKED.exec(said)?.[1];
  if (!about || step > 0 || !tools.has('recall')) return undefined;
  const query = withoutEnd(about.trim(), '?.! ').slice(0, 500);
  return query ? { calls: [{ name: 'recall', input: { query } }] } : undefined;
};

const Remembered = z.object({ text: z.string() });
const Recalled = z.object({ facts: z.array(z.object({ text: z.string() })) });

/** Says what was stored or found. */
export const reportFacts: Intent = ({ results }) => {
  const [result] = results;
  if (!result || result.isError || results.length > 1) return undefined;
  const value = parseResult(result.output);
  const stored = result.name === 'remember' ? Remembered.safeParse(value).data : undefined;
  if (stored) return { text: `I will remember: ${stored.text}` };
  if (result.name !== 'recall') return undefined;
  const { data } = Recalled.safeParse(value);
  if (!data) return undefined;
  if (data.facts.length === 0) return { text: 'I do not remember anything about that.' };
  return { text: `I remember:\n\n${data.facts.map(({ text }) => `- ${text}`).join('\n')}` };
};

/** Stores a fact about the user. */
export const rememberFact: Intent = ({ said, tools }) => {
  const tool = tools.get('remember');
  if (!tool || said.endsWith('?')) return undefined;
  const fact = FACTS.map((pattern) => pattern.exec(said)?.[1]).find(Boolean);
  if (!fact) return undefined;
  const text = withoutEnd(fact.trim(), '.!');
  return { calls: [{ name: tool.name, input: parseArguments(tool, text) }] };
};
