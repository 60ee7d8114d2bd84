import type { JsonObject } from '@sibyl/client';
import { type FormEvent, useState } from 'react';
import { useFormDraft } from '../chat/drafts.js';
import { t } from '../i18n/i18n.js';
import { useConversation } from '../page/page-context.js';

interface Field {
  readonly name: string;
  readonly label: string;
  readonly kind: string;
  readonly choices: readonly string[];
}

interface FormData {
  readonly title: string;
  readonly fields: readonly Field[];
}

/** Reads what a model sent; fields without a name are omitted. */
export function readForm({ title, fields }: JsonObject): FormData {
  const list = Array.isArray(fields) ? fields : [];
  return {
    title: typeof title === 'string' ? title : t('chat.form'),
    fields: list.flatMap((field) => {
      const { name, label, kind = 'text', choices } = (field ?? {}) as Partial<Field>;
      if (typeof name !== 'string' || !name) return [];
      const options = Array.isArray(choices) ? choices.filter(isText) : [];
      return [{ name, label: isText(label) ? label : name, kind, choices: options }];
    }),
  };
}

const isText = (value: unknown): value is string => typeof value === 'string';

/** A form whose values become the user's next message. */
function FormView({ id, title, fields }: FormData & { readonly id: string }) {
  const { sessionId, send } = useConversation();
  const initial: Readonly<Record<string, string>> = Object.fromEntries(
    fields.map(({ name }) => [name, '']),
  );
  // The id of a call is unique only within its conversation.
  const draft = useFormDraft(`form:${sessionId}:${id}`, initial);
  const [sent, setSent] = useState<typeof initial>();
  const values = sent ?? draft.values;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setSent(values);
    const lines = fields.map(({ name, label }) => `${label}: ${values[name] ?? ''}`);
    send([title, ...lines].join('\n'));
    draft.clear();
  };
  return (
    <form className="card card-pad stack" aria-label={title} onSubmit={submit}>
      <h3 className="title-2">{title}</h3>
      {fields.map((field) => (
        <label key={field.name} className="field" htmlFor={`${id} ${field.name}`}>
          <span>{field.label}</span>
          <FieldInput
            id={`${id} ${field.name}`}
            field={field}
            value={values[field.name] ?? ''}
            onChange={(value) => draft.change({ [field.name]: value })}
          />
        </label>
      ))}
      <div className="actions">
        <button type="submit" className="btn btn-primary" disabled={sent !== undefined}>
          {t(sent ? 'chat.form.sent' : 'chat.form.send')}
        </button>
      </div>
    </form>
  );
}

interface FieldInputProps {
  readonly id: string;
  readonly field: Field;
  readonly value: string;
  readonly onChange: (value: string) => void;
}

function FieldInput({ id, field: { kind, choices }, value, onChange }: FieldInputProps) {
  if (kind === 'choice') {
    return (
      <select
        className="input"
        id={id}
        required
        value={value}
        onChange={({ target }) => onChange(target.value)}
      >
        <option value="" disabled>
          {t('chat.form.choose')}
        </option>
        {choices.map((choice) => (
          <option key={choice}>{choice}</option>
        ))}
      </select>
    );
  }
  const type = kind === 'number' || kind === 'date' ? kind : 'text';
  return (
    <input
      className="input"
      id={id}
      type={type}
      dir="auto"
      value={value}
      onChange={({ target }) => onChange(target.value)}
    />
  );
}

/** A form of the arguments that a model sent. */
export const FormActionView = ({
  id,
  args,
}: {
  readonly id: string;
  readonly args: JsonObject;
}) => <FormView id={id} {...readForm(args)} />;
