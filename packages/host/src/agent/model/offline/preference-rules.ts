import { languageIn } from './language-names.js';

export type PreferenceChange = Readonly<Record<string, string | null>>;
type PreferenceRule = (said: string) => PreferenceChange | undefined;

const LASTING = /\b(from now on|from here on|always|in (the )?future|every time|each time)\b,?/i;
const ONE_TURN: readonly RegExp[] = [
  /\b(once|for now|right now)\b/i,
  /\bthis (time|answer|reply|question|message|one|turn)\b/i,
  /\b(answer|say|write|translate) this\b/i,
  /\b(a|an|one) (\w+ )?(answer|reply|response|summary)\b/i,
];

/** What the user wants kept: nothing if it is meant for one turn only. */
export function preferencesIn(said: string): PreferenceChange | undefined {
  if (ONE_TURN.some((mark) => mark.test(said))) return undefined;
  const found: PreferenceChange = Object.assign({}, ...rules.map((rule) => rule(said)));
  if (Object.keys(found).length > 0) return found;
  return customInstruction(said);
}

const language: PreferenceRule = (said) => {
  const asks = /(?<!\bI )\b(answer|reply|respond|speak|talk|switch|write (to )?me)\b/i.test(said);
  if (!asks || isQuestion(said)) return undefined;
  const name = languageIn(said);
  return name ? { language: name } : undefined;
};

const NAME = `["'“]?([\\p{L}][\\p{L}\\p{N}'’-]*(?: \\p{Lu}[\\p{L}\\p{N}'’-]*)*)`;
const userNameIn = new RegExp(`\\bcall me ${NAME}`, 'iu');
const agentNameIn = new RegExp(
  `\\b(?:your name is|your name shall be|change your name to|you are called|(?:call|name) yourself|(?:i'll|i will|let me) call you) ${NAME}`,
  'iu',
);
const NOT_A_NAME = /^(when|if|back|later|tomorrow|a|an|the)$/i;

const userName: PreferenceRule = (said) => named('userName', userNameIn.exec(said));
const agentName: PreferenceRule = (said) => named('agentName', agentNameIn.exec(said));

function named(field: string, match: RegExpExecArray | null): PreferenceChange | undefined {
  const words = match?.[1]?.split(' ') ?? [];
  // The name ends at the first lower-case word that follows, such as "from now on".
  const end = words.findIndex((word, i) => i > 0 && !/^\p{Lu}/u.test(word));
  const proper = end === -1 ? words : words.slice(0, end);
  const [first] = proper;
  return first && !NOT_A_NAME.test(first) ? { [field]: proper.join(' ') } : undefined;
}

/** A style is asked of the answers to come, not of a poem or a plan that the user orders. */
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

const length: PreferenceRule = (said) => styled('length', lengths, said);
const formality: PreferenceRule = (said) => styled('formality', formalities, said);
const tone: PreferenceRule = (said) => styled('tone', tones, said);

function styled(
  field: string,
  options: Readonly<Record<string, RegExp>>,
  said: string,
): PreferenceChange | undefined {
  const asks = STYLE_REQUESTS.some((request) => request.test(said));
  if (!asks || isQuestion(said)) return undefined;
  const value = Object.keys(options).find((option) => options[option]?.test(said));
  return value ? { [field]: value } : undefined;
}

/** A format counts as lasting only when the user says so: most such requests are for one answer. */
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
