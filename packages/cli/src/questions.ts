import type { Question } from '@sibyl/client';
import { CommandError } from './command.js';
import { describeValue, printLine } from './reply-printer.js';
import type { Output } from './terminal.js';

/** What a tool asks, and how it can be answered. */
export function printQuestion({ data, schema }: Question, output: Output): void {
  printLine(`? ${describeValue(data ?? '') || describeAsked(schema)}`, output);
  printLine(`  ${describeAnswers(schema)}; another message cancels the question`, output);
}

/** Reads an answer as it is typed: the value of a single field, or JSON. */
export function parseAnswer(text: string, schema: Schema): unknown {
  if (text === '') throw noAnswer(schema);
  const { name, schema: asked } = findField(schema);
  if (name === undefined) return parseValue(text, asked, schema);
  return parseWhole(text, name, schema) ?? { [name]: parseValue(text, asked, schema) };
}

type Schema = Question['schema'];

function describeAsked(schema: Schema): string {
  const { name, schema: asked } = findField(schema);
  const { description = asked.title ?? name } = asked;
  return ['A tool asks you a question', description].filter(Boolean).join(': ');
}

function describeAnswers(schema: Schema): string {
  const { name = 'text', schema: asked } = findField(schema);
  const choices = findChoices(asked);
  if (choices.length > 0) return choices.map(describeChoice).join(', or ');
  if (asked.type === 'boolean') return '/answer yes, or /answer no';
  if (isSimple(asked)) return `/answer <${name}>`;
  const { required, optional } = describeFields(asked);
  if (required || optional)
    return `/answer {${required}}${optional && `, optionally with ${optional}`}`;
  return asked.type === 'array' && asked.items
    ? `/answer ${describeType(asked)}`
    : '/answer <JSON>';
}

const describeChoice = ({ text, title }: Choice) =>
  title === undefined ? `/answer ${text}` : `/answer ${text} (${title})`;

/** The fields of an object, as JSON shows them. */
function describeFields(schema: Schema) {
  const required = new Set([schema.required ?? []].flat());
  const describeSome = (isRequired: boolean) =>
    Object.entries(readProperties(schema))
      .filter(([name]) => required.has(name) === isRequired)
      .map(([name, field]) => `"${name}": ${describeType(omitNull(field))}`)
      .join(', ');
  return { required: describeSome(true), optional: describeSome(false) };
}

function describeType(schema: Schema): string {
  const { type = 'value', items } = schema;
  if (type === 'array' && items) return `[${describeType(omitNull(toSchema(items)))}]`;
  const choices = findChoices(schema).map(({ text }) => text);
  return `<${(choices.length > 0 ? choices : [type].flat()).join(' or ')}>`;
}

/** All that is asked, if the text is JSON with the only field; `{}` leaves out one that is optional. */
function parseWhole(text: string, name: string, schema: Schema): object | undefined {
  const { [name]: field = {} } = readProperties(schema);
  // Its own fields are what is typed, also if one has the same name.
  if (!text.startsWith('{') || Object.hasOwn(readProperties(omitNull(field)), name))
    return undefined;
  try {
    const value: object = JSON.parse(text);
    const isLeftOut = Object.keys(value).length === 0 && ![schema.required].flat().includes(name);
    return Object.hasOwn(value, name) || isLeftOut ? value : undefined;
  } catch {
    // A text may begin like JSON.
    return undefined;
  }
}

function parseValue(text: string, asked: Schema, whole: Schema): unknown {
  const choices = findChoices(asked);
  const choice = choices.find((each) => each.text === text);
  if (choice) return choice.value;
  if (asked.type === 'boolean' && /^(y|yes|true)$/i.test(text)) return true;
  if (asked.type === 'boolean' && /^(n|no|false)$/i.test(text)) return false;
  return asked.type === 'string' && choices.length === 0 ? text : parseJson(text, whole);
}

function parseJson(text: string, schema: Schema): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw noAnswer(schema);
  }
}

const noAnswer = (schema: Schema) =>
  new CommandError(`This does not answer the question. Write ${describeAnswers(schema)}`);

/** The only field of an object, or else all that is asked. */
function findField(schema: Schema): { readonly name?: string; readonly schema: Schema } {
  const [first, ...others] = Object.entries(readProperties(schema));
  if (!first || others.length > 0) return { schema: omitNull(schema) };
  return { name: first[0], schema: omitNull(first[1]) };
}

/** What is asked if it may also be null, which only JSON can say. */
function omitNull(schema: Schema): Schema {
  const [type, ...otherTypes] = [schema.type].flat().filter((each) => each !== 'null');
  if (type !== undefined && otherTypes.length === 0) return { ...schema, type };
  const { anyOf: _, oneOf: __, ...rest } = schema;
  const [asked, ...others] = readAlternatives(schema).filter((each) => each.type !== 'null');
  return asked && others.length === 0 ? { ...asked, ...rest } : schema;
}

interface Choice {
  /** What is typed to choose it. */
  readonly text: string;
  readonly title?: unknown;
  readonly value: unknown;
}

/** The values that can be chosen, without null; none if others are allowed. */
function findChoices(schema: Schema): readonly Choice[] {
  return (readChoices(schema) ?? []).filter(({ value }) => value !== null);
}

function readChoices(schema: Schema): readonly Choice[] | undefined {
  if (schema.const !== undefined) return [toChoice(schema.const)];
  if (Array.isArray(schema.enum)) return schema.enum.map(toChoice);
  if (schema.type === 'null') return [];
  const alternatives = readAlternatives(schema);
  if (alternatives.length === 0) return undefined;
  const choices = alternatives.map((each) => {
    const { const: value, title } = each;
    return value === undefined ? readChoices(each) : [{ ...toChoice(value), title }];
  });
  return choices.every((each) => each !== undefined) ? choices.flat() : undefined;
}

const toChoice = (value: unknown): Choice => ({
  value,
  text: typeof value === 'object' ? JSON.stringify(value) : String(value),
});

/** The members of a union. */
function readAlternatives({ anyOf, oneOf }: Schema): readonly Schema[] {
  const alternatives = anyOf ?? oneOf;
  return Array.isArray(alternatives) ? alternatives.map(toSchema) : [];
}

const readProperties = ({ properties }: Schema): Readonly<Record<string, Schema>> =>
  Object.fromEntries(
    Object.entries(toSchema(properties)).map(([name, field]) => [name, toSchema(field)]),
  );

/** In JSON Schema, `true` allows any value, as an empty object does. */
const toSchema = (value: unknown): Schema =>
  typeof value === 'object' && value !== null ? (value as Schema) : {};

const isSimple = ({ type }: Schema) => ['string', 'number', 'integer'].includes(String(type));
