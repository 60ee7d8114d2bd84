import type { JsonObject } from '@sibyl/client';
import { useState } from 'react';
import { t } from '../i18n/i18n.js';
import { toWords } from './answer-parts.js';

const toLabel = (name: string): string => {
  const words = toWords(name);
  return words.charAt(0).toUpperCase() + words.slice(1);
};

const toText = (value: unknown): string =>
  typeof value === 'string' ? value : JSON.stringify(value);

interface ArgumentListProps {
  readonly args: JsonObject;
  readonly edited: JsonObject | undefined;
}

/** The arguments as labels and values; what the user has changed shows both versions. */
export function ArgumentList({ args, edited }: ArgumentListProps) {
  const names = [...new Set([...Object.keys(args), ...Object.keys(edited ?? {})])];
  if (names.length === 0) return <p className="quiet">{t('chat.approval.noArguments')}</p>;
  return (
    <dl className="args">
      {names.map((name) => {
        const before = toText(args[name] ?? '');
        const now = edited ? toText(edited[name] ?? '') : before;
        return (
          <div key={name}>
            <dt>{toLabel(name)}</dt>
            <dd className="line" dir="auto">
              {now === before ? (
                before
              ) : (
                <>
                  <del>{before}</del> <ins>{now}</ins>
                  <span className="badge is-accent">{t('chat.approval.changed')}</span>
                </>
              )}
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

interface PropertySchema {
  readonly type?: string;
  readonly enum?: readonly unknown[];
  readonly description?: string;
}

interface ArgumentFieldsProps {
  readonly schema: JsonObject;
  readonly args: JsonObject;
  readonly onChange: (args: JsonObject) => void;
}

/** The arguments as a form, after the tool's own schema. */
export function ArgumentFields({ schema, args, onChange }: ArgumentFieldsProps) {
  const properties = (schema.properties ?? {}) as Readonly<Record<string, PropertySchema>>;
  const names = [...new Set([...Object.keys(properties), ...Object.keys(args)])];
  return (
    <div className="stack">
      {names.map((name) => (
        // biome-ignore lint/a11y/noLabelWithoutControl: the input is in the component.
        <label key={name} className="field">
          <span>{toLabel(name)}</span>
          <ArgumentInput
            schema={properties[name] ?? {}}
            value={args[name]}
            onChange={(value) => {
              const { [name]: _, ...rest } = args;
              onChange(
                value === undefined ? rest : { ...args, [name]: value as JsonObject[string] },
              );
            }}
          />
          {properties[name]?.description && (
            <span className="hint">{properties[name].description}</span>
          )}
        </label>
      ))}
    </div>
  );
}

interface ArgumentInputProps {
  readonly schema: PropertySchema;
  readonly value: unknown;
  readonly onChange: (value: unknown) => void;
}

function ArgumentInput({ schema, value, onChange }: ArgumentInputProps) {
  if (schema.enum) {
    return (
      <select
        className="input"
        value={toText(value ?? '')}
        onChange={({ target }) =>
          onChange(schema.enum?.find((each) => toText(each) === target.value) ?? target.value)
        }
      >
        {schema.enum.map((each) => (
          <option key={toText(each)}>{toText(each)}</option>
        ))}
      </select>
    );
  }
  if (schema.type === 'boolean') {
    return (
      <input
        type="checkbox"
        className="switch"
        checked={value === true}
        onChange={({ target }) => onChange(target.checked)}
      />
    );
  }
  const isNumber = schema.type === 'number' || schema.type === 'integer';
  if (isNumber) {
    return (
      <input
        type="number"
        step="any"
        className="input"
        value={typeof value === 'number' ? value : ''}
        onChange={({ target }) => onChange(target.value === '' ? undefined : target.valueAsNumber)}
      />
    );
  }
  if (typeof value === 'object' && value !== null)
    return <JsonInput value={value} onChange={onChange} />;
  const text = typeof value === 'string' ? value : '';
  return (
    <textarea
      className="input"
      rows={text.length > 80 || text.includes('\n') ? 4 : 1}
      dir="auto"
      value={text}
      onChange={({ target }) => onChange(target.value)}
    />
  );
}

/** A list or object; text that is not JSON is passed on as text, which the tool's schema rejects. */
function JsonInput({ value, onChange }: Omit<ArgumentInputProps, 'schema'>) {
  const [text, setText] = useState(() => JSON.stringify(value, null, 2));
  const [isInvalid, setInvalid] = useState(false);
  const change = (typed: string) => {
    setText(typed);
    const parsed = parseJson(typed);
    setInvalid(parsed === undefined);
    onChange(parsed ?? typed);
  };
  return (
    <textarea
      className="input"
      rows={4}
      dir="ltr"
      aria-invalid={isInvalid || undefined}
      value={text}
      onChange={({ target }) => change(target.value)}
    />
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
