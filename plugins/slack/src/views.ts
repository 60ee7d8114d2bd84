import type { EndedInterrupt, OpenInterrupt } from '@sibyl/plugin-kit/chat';
import { UserPreferences } from '@sibyl/protocol';
import { z } from 'zod';

/** A block of Slack's Block Kit. */
export type Block = Readonly<Record<string, unknown>>;

/** A modal. */
export type View = Readonly<Record<string, unknown>>;

/** The ids of buttons and modals. */
export const STOP = 'stop';
export const PREFERENCES = 'preferences';
export const ANSWER = 'answer';
export const OPEN_QUESTION = 'open_question';

/** Slack's limits. */
const BUTTON_LENGTH = 75;
const TITLE_LENGTH = 24;
const LABEL_LENGTH = 150;
const SECTION_LENGTH = 3000;
const MAX_BUTTONS = 5;
const MAX_FIELDS = 20;

const plain = (text: string, length: number) => ({
  type: 'plain_text',
  text: text.slice(0, length) || '…',
});

export const section = (text: string): Block => ({
  type: 'section',
  text: { type: 'mrkdwn', text: text.slice(0, SECTION_LENGTH) },
});

interface Button {
  readonly action: string;
  readonly label: string;
  readonly value?: string;
  readonly style?: 'primary' | 'danger';
}

export const actions = (buttons: readonly Button[]): Block => ({
  type: 'actions',
  elements: buttons.map(({ action, label, value, style }) => ({
    type: 'button',
    action_id: action,
    text: plain(label, BUTTON_LENGTH),
    ...(value !== undefined && { value }),
    ...(style && { style }),
  })),
});

/** The button below an answer that is being written. */
export const stopButton = (sessionId: string): Block =>
  actions([{ action: STOP, label: 'Stop', value: sessionId }]);

/** What a button with an answer carries. */
export const AnswerValue = z.object({
  id: z.string(),
  sessionId: z.string(),
  value: z.unknown().optional(),
  /** Denies a tool call: to approve it, users need their key, which they do not have in Slack. */
  isDenial: z.boolean().optional(),
});
/** What a button that opens a modal for a question carries. */
export const QuestionPlace = z.object({ id: z.string(), sessionId: z.string() });

const Schema = z.object({
  type: z.string().optional(),
  enum: z.array(z.union([z.string(), z.number()])).optional(),
  properties: z.record(z.string(), z.unknown()).optional(),
  required: z.array(z.string()).optional(),
  title: z.string().optional(),
  description: z.string().optional(),
});
type Schema = z.infer<typeof Schema>;
const parseSchema = (schema: unknown): Schema => Schema.safeParse(schema).data ?? {};

/** The text of a question in a conversation, and buttons for the possible answers or one that opens a modal. */
export function renderQuestion(question: OpenInterrupt, sessionId: string): [string, Block] {
  const { id } = question;
  if (question.isApproval) {
    const value = JSON.stringify({ id, sessionId, isDenial: true });
    const button = { action: `${ANSWER}:deny`, label: 'Deny', value, style: 'danger' as const };
    return [`${describeQuestion(question)}\n${NO_KEY}`, actions([button])];
  }
  const choices = listChoices(parseSchema(question.schema));
  const buttons = choices
    ? choices.map(({ label, value }, i) => ({
        action: `${ANSWER}:${i}`,
        label,
        value: JSON.stringify({ id, sessionId, value }),
      }))
    : [
        {
          action: OPEN_QUESTION,
          label: 'Answer…',
          value: JSON.stringify({ id, sessionId }),
        },
      ];
  return [describeQuestion(question), actions(buttons)];
}

const NO_KEY =
  '_This call needs an approval that is signed with a key, which is not possible in Slack._';

/** The text of a question that cannot be answered any more: without buttons. */
export function renderEnded(question: EndedInterrupt | undefined): string {
  if (!question) return CLOSED;
  const { outcome, value, schema } = question;
  // Only what was on a button: others in the channel may not know more.
  const choice = listChoices(parseSchema(schema))?.find((one) => one.value === value);
  const shown =
    outcome === 'answered' && choice
      ? `:white_check_mark: ${escapeMarkup(choice.label)}`
      : OUTCOMES[outcome];
  return `${describeQuestion(question)}\n${shown}`;
}

const CLOSED = '_This question is closed._';

const OUTCOMES: Readonly<Record<EndedInterrupt['outcome'], string>> = {
  answered: ':white_check_mark: Answered',
  approved: ':white_check_mark: Approved',
  denied: ':white_check_mark: Denied',
  expired: ':hourglass: Expired',
  cancelled: ':no_entry_sign: Canceled',
};

/** The answers that fit on buttons. */
function listChoices({ type, enum: values }: Schema) {
  if (type === 'boolean')
    return [
      { label: 'Yes', value: true },
      { label: 'No', value: false },
    ];
  if (!values || values.length > MAX_BUTTONS) return undefined;
  return values.map((value) => ({ label: String(value), value }));
}

const QuestionData = z.union([
  z.string(),
  z.object({ question: z.string() }).transform(({ question }) => question),
  z.object({ message: z.string() }).transform(({ message }) => message),
]);

/** The text of a question, without Slack's markup. */
export function describeQuestion({ data, kind }: OpenInterrupt): string {
  const { data: text } = QuestionData.safeParse(data);
  const shown = text ?? (data === undefined ? DEFAULTS[kind] : JSON.stringify(data));
  return escapeMarkup(shown ?? 'Your answer is needed.');
}

const DEFAULTS: Readonly<Record<string, string>> = {
  confirmation: 'May I continue?',
  input_required: 'I need more information.',
};

const escapeMarkup = (text: string) =>
  text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');

interface ModalPlace {
  readonly channel: string;
  readonly thread?: string | undefined;
  /** The post with the question. */
  readonly ts?: string | undefined;
  readonly id: string;
  readonly sessionId: string;
}
export const ModalPlace = z.object({
  channel: z.string(),
  thread: z.string().optional(),
  ts: z.string().optional(),
  id: z.string(),
  sessionId: z.string(),
  /** Whether the fields together are the answer, or the only one is. */
  isObject: z.boolean(),
  types: z.record(z.string(), z.string()),
});

/** A modal that asks for what the schema of a question describes. */
export function renderQuestionModal(question: OpenInterrupt, place: ModalPlace): View {
  const schema = parseSchema(question.schema);
  const isObject = schema.properties !== undefined;
  const fields = isObject ? Object.entries(schema.properties ?? {}) : [['answer', schema] as const];
  const shown = fields.slice(0, MAX_FIELDS).map(([name, field]) => {
    const parsed = parseSchema(field);
    return { name, field: parsed, isOptional: isObject && !schema.required?.includes(name) };
  });
  const types = Object.fromEntries(shown.map(({ name, field }) => [name, field.type ?? 'string']));
  return {
    type: 'modal',
    callback_id: ANSWER,
    private_metadata: JSON.stringify({ ...place, isObject, types }),
    title: plain('Your answer', TITLE_LENGTH),
    submit: plain('Send', TITLE_LENGTH),
    blocks: [section(describeQuestion(question)), ...shown.map(renderField)],
  };
}

interface Field {
  readonly name: string;
  readonly field: Schema;
  readonly isOptional: boolean;
  readonly initial?: string | undefined;
  readonly isLong?: boolean;
}

function renderField({ name, field, isOptional, initial, isLong }: Field): Block {
  const options = field.type === 'boolean' ? ['true', 'false'] : field.enum?.map(String);
  return {
    type: 'input',
    block_id: name,
    optional: isOptional,
    label: plain(field.title ?? name, LABEL_LENGTH),
    ...(field.description && { hint: plain(field.description, LABEL_LENGTH) }),
    element: options ? renderSelect(options, initial) : renderText(initial, isLong ?? false),
  };
}

function renderSelect(options: readonly string[], initial: string | undefined): Block {
  const toOption = (value: string) => ({ text: plain(value, BUTTON_LENGTH), value });
  return {
    type: 'static_select',
    action_id: 'input',
    options: options.slice(0, 100).map(toOption),
    ...(initial && options.includes(initial) && { initial_option: toOption(initial) }),
  };
}

const renderText = (initial: string | undefined, multiline: boolean): Block => ({
  type: 'plain_text_input',
  action_id: 'input',
  multiline,
  ...(initial && { initial_value: initial }),
});

/** Converts the fields of a modal to the answer of its question. */
export function readAnswer(
  fields: Readonly<Record<string, string>>,
  { isObject, types }: Pick<z.infer<typeof ModalPlace>, 'isObject' | 'types'>,
): unknown {
  const values = Object.entries(fields).map(([name, text]) => [name, convert(text, types[name])]);
  return isObject ? Object.fromEntries(values) : values[0]?.[1];
}

function convert(text: string, type = 'string'): unknown {
  if (type === 'boolean') return text === 'true';
  if (type === 'number' || type === 'integer') return Number(text);
  return text;
}

const LABELS: Readonly<Record<string, string>> = {
  userName: 'What to call you',
  agentName: 'What to call me',
  language: 'Language',
  tone: 'Tone',
  formality: 'Formality',
  length: 'Length of answers',
  format: 'Format of answers',
  customInstructions: 'Other instructions',
};

/** A modal with the user's preferences. */
export function renderPreferences(current: UserPreferences): View {
  const { properties } = Schema.parse(z.toJSONSchema(UserPreferences, { io: 'input' }));
  const values: Readonly<Record<string, string | undefined>> = current;
  return {
    type: 'modal',
    callback_id: PREFERENCES,
    title: plain('Preferences', TITLE_LENGTH),
    submit: plain('Save', TITLE_LENGTH),
    blocks: Object.entries(LABELS).map(([name, title]) =>
      renderField({
        name,
        field: { ...parseSchema(properties?.[name]), title, description: undefined },
        isOptional: true,
        initial: values[name],
        isLong: name === 'customInstructions',
      }),
    ),
  };
}

export const PREFERENCE_FIELDS = Object.keys(LABELS);
