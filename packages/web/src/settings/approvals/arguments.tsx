import type { JsonObject } from '@sibyl/client';
import { showReordering } from '../../i18n/format.js';

type Json = JsonObject[string];

/** One argument of a call, as a person edits it. */
interface ArgumentField {
  readonly name: string;
  readonly label: string;
  readonly hint: string | undefined;
  readonly kind: 'text' | 'long-text' | 'number' | 'switch' | 'choice' | 'json';
  readonly choices: readonly string[];
  readonly isRequired: boolean;
}

interface JsonSchema {
  readonly type?: string;
  readonly title?: string;
  readonly description?: string;
  readonly enum?: readonly unknown[];
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
    return {
      name,
      label: schema.title ?? humanize(name),
      hint: schema.description,
      ...findKind(schema, args[name]),
      isRequired: required.includes(name),
    };
  });
}

function findKind(
  schema: JsonSchema,
  value: Json | undefined,
): Pick<ArgumentField, 'kind' | 'choices'> {
  const choices = schema.enum?.every((each) => typeof each === 'string') ? schema.enum : [];
  if (choices.length > 0) return { kind: 'choice', choices: choices as string[] };
  const type = value === undefined ? schema.type : typeof value;
  if (type === 'string') {
    const isLong = typeof value === 'string' && (value.length > LONG_TEXT || value.includes('\n'));
    return { kind: isLong ? 'long-text' : 'text', choices: [] };
  }
  if (type === 'number' || type === 'integer') return { kind: 'number', choices: [] };
  return { kind: type === 'boolean' ? 'switch' : 'json', choices: [] };
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
const toFieldText = (value: Json | undefined): string =>
  value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value, null, 2);

/** Reads a field; an empty one that is not required is left out. Throws on invalid JSON. */
function parseField({ kind, isRequired }: ArgumentField, text: string): Json | undefined {
  if (text === '' && !isRequired) return undefined;
  switch (kind) {
    case 'text':
    case 'long-text':
    case 'choice':
      return text;
    case 'number':
    case 'switch':
    case 'json':
      return JSON.parse(text);
  }
}

/** The arguments with everything that the user has edited; undefined if nothing differs. */
export function applyEdits(
  args: JsonObject,
  fields: readonly ArgumentField[],
  texts: Readonly<Record<string, string>>,
): JsonObject | undefined {
  const entries = fields.flatMap((field) => {
    const text = texts[field.name];
    const isEdited = text !== undefined && text !== toFieldText(args[field.name]);
    const value = isEdited ? parseField(field, text) : args[field.name];
    return value === undefined ? [] : [[field.name, value] as const];
  });
  const edited = Object.fromEntries(entries);
  return toComparable(edited) === toComparable(args) ? undefined : edited;
}

const toComparable = (args: JsonObject): string =>
  JSON.stringify(Object.entries(args).toSorted(([a], [b]) => (a < b ? -1 : 1)));

interface ArgumentFormProps {
  readonly fields: readonly ArgumentField[];
  readonly args: JsonObject;
  /** What the user has typed, by field. */
  readonly texts: Readonly<Record<string, string>>;
  readonly invalid: string | undefined;
  readonly onChange: (name: string, text: string) => void;
}

/** Edits the arguments of a call. */
export function ArgumentForm({ fields, args, texts, invalid, onChange }: ArgumentFormProps) {
  return (
    <div className="stack">
      {fields.map((field) => (
        // biome-ignore lint/a11y/noLabelWithoutControl: the control is inside.
        <label key={field.name} className="field">
          <span>{field.label}</span>
          <Control
            field={field}
            text={texts[field.name] ?? toFieldText(args[field.name])}
            onChange={(text) => onChange(field.name, text)}
          />
          {field.hint && (
            <span className="hint" dir="auto">
              {field.hint}
            </span>
          )}
        </label>
      ))}
      {invalid && (
        <p className="small is-fault" role="alert">
          {invalid}
        </p>
      )}
    </div>
  );
}

interface ControlProps {
  readonly field: ArgumentField;
  readonly text: string;
  readonly onChange: (text: string) => void;
}

function Control({ field, text, onChange }: ControlProps) {
  const change = ({ target }: { target: { value: string } }) => onChange(target.value);
  switch (field.kind) {
    case 'text':
      return <input className="input" dir="auto" value={text} onChange={change} />;
    case 'number':
      return <input className="input" type="number" step="any" value={text} onChange={change} />;
    case 'switch':
      return (
        <input
          className="switch"
          type="checkbox"
          // biome-ignore lint/a11y/useAriaPropsForRole: a checkbox has the state itself.
          role="switch"
          checked={text === 'true'}
          onChange={({ target }) => onChange(String(target.checked))}
        />
      );
    case 'choice':
      return (
        <select className="input" value={text} onChange={change}>
          {!field.isRequired && <option value="">–</option>}
          {field.choices.map((choice) => (
            <option key={choice}>{choice}</option>
          ))}
        </select>
      );
    case 'long-text':
      return <textarea className="input" dir="auto" rows={5} value={text} onChange={change} />;
    case 'json':
      return <textarea className="input mono" dir="ltr" rows={5} value={text} onChange={change} />;
  }
}
