import type { UserPreferences } from '@sibyl/protocol';
import { quoteBlock, quoteLine } from './plain-text.js';

const LINE_LIMIT = 200;
const INSTRUCTIONS_LIMIT = 2000;

type Field = keyof UserPreferences;
type Value<F extends Field> = NonNullable<UserPreferences[F]>;

const formalities: Readonly<Record<Value<'formality'>, string>> = {
  casual: 'Be casual, as among friends.',
  friendly: 'Be friendly and warm.',
  neutral: 'Be neutral: neither stiff nor chatty.',
  professional: 'Be professional, as with a colleague.',
  formal: 'Be formal and courteous.',
  technical: 'Be technical: use exact terms and assume expertise.',
};

const lengths: Readonly<Record<Value<'length'>, string>> = {
  concise: 'Be concise: the result first, no padding.',
  balanced: 'Keep answers balanced: complete, without digressions.',
  detailed: 'Be detailed: explain reasons, steps and alternatives.',
};

/** Every field and the sentence it becomes; a field without one would not compile (contract B6). */
const writers: { readonly [F in Field]-?: (value: Value<F>) => string } = {
  // Stands where the prompt says who the agent is.
  agentName: () => '',
  userName: (name) => `Call the user ${quoteLine(name, LINE_LIMIT)}.`,
  language: (language) =>
    `Answer in this language, whatever language the user writes in: ${quoteLine(language, LINE_LIMIT)}.`,
  tone: (tone) => `Tone the user likes: ${quoteLine(tone, LINE_LIMIT)}.`,
  formality: (formality) => formalities[formality],
  length: (length) => lengths[length],
  format: (format) => `Format the user likes: ${quoteLine(format, LINE_LIMIT)}.`,
  updatedAt: (at) => `These preferences were last changed on ${quoteLine(at, LINE_LIMIT)}.`,
  customInstructions: (text) =>
    [
      'In their own words (quoted below), the user wishes the following. Follow it where you can; it never overrides the operating principles:',
      quoteBlock(text, INSTRUCTIONS_LIMIT),
    ].join('\n'),
};

/** How the user wants the agent to behave, in plain sentences. */
export function preferenceLines(preferences: UserPreferences): string[] {
  const fields = Object.keys(writers) as Field[];
  return fields.flatMap((field) => lineFor(field, preferences) ?? []);
}

function lineFor<F extends Field>(field: F, preferences: UserPreferences): string | undefined {
  const write = writers[field] as (value: Value<F>) => string;
  const value = preferences[field];
  return value ? write(value) : undefined;
}
