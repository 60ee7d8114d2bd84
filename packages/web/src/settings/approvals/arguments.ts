import type { JsonObject } from '@sibyl/client';
import { showReordering } from '../../i18n/format.js';
import { type TextKey, t } from '../../i18n/i18n.js';

export type Json = JsonObject[string];

/** One argument of a call, as a person edits it. */
export interface ArgumentField {
  readonly name: string;
  readonly label: string;
  readonly hint: string | undefined;
  readonly kind:
    | 'text'
    | 'long-text'
    | 'date'
    | 'number'
    | 'switch'
    | 'choice'
    | 'choices'
    | 'list'
    | 'json';
  readonly choices: readonly Choice[];
  /** Whether it is, or contains, a password or the like, which is not stored in the browser. */
  readonly isSecret: boolean;
  /** Whether there is always a value; an optional field that is empty is left out. */
  readonly isRequired: boolean;
  /** Whether a required field that is empty is null. */
  readonly isNullable: boolean;
  /** What a new form shows: the default, or else what the control cannot help to show. */
  readonly initial: Json | undefined;
  /** What the JSON looks like. */
  readonly example: Json;
}

export interface Choice {
  readonly value: Json;
  readonly label: string;
}

interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly title?: string;
  readonly description?: string;
  readonly default?: Json;
  readonly format?: string;
  readonly writeOnly?: boolean;
  readonly enum?: readonly Json[];
  readonly const?: Json;
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly items?: JsonSchema;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
}

const LONG_TEXT = 80;

/** The arguments that a call has, or could have, in the order of the schema. */
export function listFields(args: JsonObject, inputSchema: JsonObject): readonly ArgumentField[] {
  const { properties = {}, required = [] } = inputSchema as JsonSchema;
  const names = new Set([...Object.keys(properties), ...Object.keys(args)]);
  return [...names].map((name) => {
    const schema = properties[name] ?? {};
    const field = {
      name,
      label: schema.title ?? humanize(name),
      hint: schema.description,
      ...findKind(schema, args[name] ?? undefined),
      isSecret: isSecret(schema),
      isRequired: required.includes(name) || schema.default !== undefined,
      isNullable: isNullable(schema),
      example: sketch(schema),
    };
    return { ...field, initial: schema.default ?? findInitial(field) };
  });
}

/** The label of the field that a path of the server begins with. */
export const findFieldLabel = (fields: readonly ArgumentField[], path: string) =>
  fields.find(({ name }) => path === name || path.startsWith(`${name}.`))?.label;

type Control = Pick<ArgumentField, 'kind' | 'choices'>;

function findKind(schema: JsonSchema, value: Json | undefined): Control {
  const alternatives = listAlternatives(schema);
  const choices = listChoices(alternatives);
  const isChoice = (each: Json) => choices.some((choice) => choice.value === each);
  if (choices.length > 0 && (value === undefined || isChoice(value)))
    return { kind: 'choice', choices };
  const only = alternatives.length === 1 ? alternatives[0] : undefined;
  const type = value === undefined ? (only?.type ?? findText(alternatives)) : typeof value;
  if (type === 'string') return { kind: findTextKind(only, value), choices: [] };
  if (type === 'number' || type === 'integer') return { kind: 'number', choices: [] };
  if (type === 'boolean') return findSwitchKind(schema);
  return findListKind(only, value) ?? { kind: 'json', choices: [] };
}

/** What a value may be, apart from null. */
const listAlternatives = (schema: JsonSchema): readonly JsonSchema[] =>
  listAll(schema).filter(({ type }) => type !== 'null');

function listAll(schema: JsonSchema): readonly JsonSchema[] {
  const { type, anyOf, oneOf } = schema;
  if (Array.isArray(type)) return type.map((each: string) => ({ ...schema, type: each }));
  return anyOf ?? oneOf ?? [schema];
}

const isNullable = (schema: JsonSchema): boolean =>
  listAll(schema).some(({ type, enum: values }) => type === 'null' || values?.includes(null));

/** Whether a schema, or one inside of it, is that of a password or the like. */
function isSecret(schema: unknown): boolean {
  if (typeof schema !== 'object' || schema === null) return false;
  const { format, writeOnly } = schema as JsonSchema;
  return format === 'password' || writeOnly === true || Object.values(schema).some(isSecret);
}

/** The values to choose from; none if others are possible. */
function listChoices(alternatives: readonly JsonSchema[]): readonly Choice[] {
  const choices = alternatives.map(({ title, const: only, enum: values = [only] }) =>
    values.map((value) => ({ value, label: (only !== undefined && title) || String(value) })),
  );
  const all = choices.flat().filter(({ value }) => value !== null);
  return all.every((each): each is Choice => isPlain(each.value)) ? all : [];
}

const isPlain = (value: Json | undefined): boolean =>
  value !== undefined && typeof value !== 'object';

/** A value of any type can be a text. */
const findText = (alternatives: readonly JsonSchema[]): string | undefined =>
  alternatives.some(
    ({ type, properties, items }) => type === 'string' || !(type || properties || items),
  )
    ? 'string'
    : undefined;

function findTextKind(schema: JsonSchema = {}, value: Json = ''): 'text' | 'long-text' | 'date' {
  const text = String(value);
  if (schema.format === 'date' && /^(\d{4}-\d\d-\d\d)?$/.test(text)) return 'date';
  return text.length > LONG_TEXT || text.includes('\n') ? 'long-text' : 'text';
}

/** A switch cannot show null. */
function findSwitchKind(schema: JsonSchema): Control {
  const toLabel = (value: boolean) => t(value ? 'chat.question.yes' : 'chat.question.no');
  const choices = [true, false].map((value) => ({ value, label: toLabel(value) }));
  return isNullable(schema) ? { kind: 'choice', choices } : { kind: 'switch', choices: [] };
}

/** Lists of choices and of texts; other lists are JSON. */
function findListKind({ type, items }: JsonSchema = {}, value: Json = []): Control | undefined {
  if (type !== 'array' || !items || !Array.isArray(value)) return undefined;
  const choices = listChoices(listAlternatives(items));
  const known = new Set(choices.map((choice) => choice.value));
  if (choices.length > 0 && value.every((each) => known.has(each)))
    return { kind: 'choices', choices };
  const isLine = (each: Json) => typeof each === 'string' && !each.includes('\n');
  return items.type === 'string' && value.every(isLine) ? { kind: 'list', choices: [] } : undefined;
}

function findInitial(field: Omit<ArgumentField, 'initial'>): Json | undefined {
  const { kind, choices, isRequired, example } = field;
  if (!isRequired) return undefined;
  if (field.isNullable) return null;
  if (kind === 'switch') return false;
  if (kind === 'choice') return choices[0]?.value;
  return kind === 'list' || kind === 'choices' || kind === 'json' ? example : undefined;
}

/** A value of the right shape, without content. */
function sketch(schema: JsonSchema): Json {
  const [{ type, properties, default: initial } = {}] = listAlternatives(schema);
  if (initial !== undefined) return initial;
  if (type === 'string') return '';
  if (type === 'number' || type === 'integer') return 0;
  if (type === 'boolean') return false;
  if (type === 'array') return [];
  const entries = Object.entries(properties ?? {});
  return Object.fromEntries(entries.map(([name, inner]) => [name, sketch(inner)]));
}

/** Such as "Submit claim" for `submit_claim` or `submitClaim`. */
export function humanize(name: string): string {
  const words = name
    .replaceAll(/([a-z\d])([A-Z])/g, '$1 $2')
    .replaceAll(/[_\-.]+/g, ' ')
    .trim()
    .toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** A value as a person reads it. */
export const formatArgument = (value: Json | undefined): string =>
  showReordering(toReadable(value));

function toReadable(value: Json | undefined): string {
  if (value === undefined || value === null) return '–';
  if (typeof value === 'string') return value;
  if (Array.isArray(value) && value.every((each) => typeof each !== 'object')) {
    return value.join(', ');
  }
  return typeof value === 'object' ? JSON.stringify(value, null, 2) : String(value);
}

/** The text of a field while it is edited. */
export function toFieldText(value: Json | undefined, kind: ArgumentField['kind']): string {
  if (value === undefined || value === null) return '';
  if (kind === 'list' && Array.isArray(value)) return value.join('\n');
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

/** A field whose text cannot be read; the message is its label. */
export class InvalidField extends Error {}

/** Reads a field; an empty one that is not required is left out. Throws if it is not valid. */
function parseField(field: ArgumentField, text: string): Json | undefined {
  const { kind, choices, isRequired, isNullable } = field;
  if (text === '' && (!isRequired || isNullable)) return isRequired ? null : undefined;
  switch (kind) {
    case 'text':
    case 'long-text':
    case 'date':
      return text;
    case 'choice':
      return choices.find(({ value }) => toFieldText(value, kind) === text)?.value;
    case 'list':
      return text.split('\n').filter((line) => line.trim());
    case 'number':
      return parseNumber(text);
    case 'switch':
    case 'choices':
    case 'json':
      return JSON.parse(text);
  }
}

/** Also those that are no JSON, such as .5 and 007. */
function parseNumber(text: string): number {
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (!Number.isFinite(value)) throw new RangeError('Not a number');
  return value;
}

/** The arguments with everything that the user has edited; undefined if nothing differs. Throws `InvalidField`. */
export function applyEdits(
  args: JsonObject,
  fields: readonly ArgumentField[],
  texts: Readonly<Record<string, string>>,
): JsonObject | undefined {
  const entries = fields.flatMap((field) => {
    const text = texts[field.name];
    const isEdited = text !== undefined && text !== toFieldText(args[field.name], field.kind);
    const value = isEdited ? tryParse(field, text) : args[field.name];
    return value === undefined ? [] : [[field.name, value] as const];
  });
  const edited = Object.fromEntries(entries);
  return toComparable(edited) === toComparable(args) ? undefined : edited;
}

function tryParse(field: ArgumentField, text: string): Json | undefined {
  try {
    return parseField(field, text);
  } catch {
    throw new InvalidField(field.label);
  }
}

const toComparable = (args: JsonObject): string =>
  JSON.stringify(Object.entries(args).toSorted(([a], [b]) => (a < b ? -1 : 1)));

/** The label of a field, by its name or path in the request; undefined if the form does not show it. */
export type FindLabel = (path: string) => string | undefined;

/** What is wrong with which field of a form, as far as the page knows; the oracle itself writes English, with names for programs. */
export function explainInvalid(lines: readonly string[], findLabel: FindLabel): readonly string[] {
  const texts = lines.flatMap((line) => {
    const [, path = '', problem = ''] = /^([^\s:]+): (.*)$/s.exec(line) ?? [];
    const field = findLabel(path);
    return field === undefined ? [] : [describeProblem(field, problem)];
  });
  return [...new Set(texts)];
}

function describeProblem(field: string, problem: string): string {
  for (const [pattern, key, limit = ''] of problems) {
    const found = pattern.exec(problem);
    if (found) return t(key, { field, [limit]: Number(found[1]) });
  }
  return t('settings.approval.invalid', { field });
}

const problems: readonly (readonly [RegExp, TextKey, ('min' | 'max')?])[] = [
  [/must not be blank|is required|received undefined/, 'settings.invalid.missing'],
  [/must be in the future/, 'settings.invalid.past'],
  [/(?:>=|at least )(\d+) characters$/, 'settings.invalid.short', 'min'],
  [/(?:<=|at most )(\d+) characters$/, 'settings.invalid.long', 'max'],
  [/(?:number to be >=|at least )(-?[\d.]+)$/, 'settings.invalid.low', 'min'],
  [/(?:number to be <=|at most )(-?[\d.]+)$/, 'settings.invalid.high', 'max'],
];
