import type { JsonObject } from '@sibyl/client';
import { type ArgumentField, toFieldText } from './arguments.js';

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
