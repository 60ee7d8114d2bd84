import type { JsonObject } from '@sibyl/client';
import { type ReactNode, useState } from 'react';
import { useFormDraft } from '../../chat/drafts.js';
import { t } from '../../i18n/i18n.js';
import { LeaveGuard } from '../parts.js';
import { type ArgumentField, type Choice, type Json, toFieldText } from './arguments.js';

/** What the user has typed, by field. */
export type Texts = Readonly<Record<string, string>>;

interface TypedInput {
  readonly reason: string;
  readonly texts: Texts;
}

/** What the user has typed into the card of an approval or a question; it survives a reload, except for secrets. */
export function useTyped(formId: string, fields: readonly ArgumentField[]) {
  const { values, change, clear } = useFormDraft<TypedInput>(formId, { reason: '', texts: {} });
  const [secrets, setSecrets] = useState<Texts>({});
  const isSecret = (name: string) => fields.find((field) => field.name === name)?.isSecret;
  return {
    reason: values.reason,
    changeReason: (reason: string) => change({ reason }),
    texts: { ...values.texts, ...secrets },
    changeText: (name: string, text: string) =>
      isSecret(name)
        ? setSecrets({ ...secrets, [name]: text })
        : change({ texts: { ...values.texts, [name]: text } }),
    undoTexts: () => {
      setSecrets({});
      change({ texts: {} });
    },
    clear: () => {
      setSecrets({});
      clear();
    },
  };
}

interface ArgumentFormProps {
  readonly fields: readonly ArgumentField[];
  readonly args: JsonObject;
  readonly texts: Texts;
  /** The label of a field whose text cannot be read. */
  readonly invalid: string | undefined;
  readonly onChange: (name: string, text: string) => void;
}

/** Edits the arguments of a call. */
export function ArgumentForm({ fields, args, texts, invalid, onChange }: ArgumentFormProps) {
  return (
    <div className="stack">
      <LeaveGuard isActive={fields.some(({ isSecret, name }) => isSecret && texts[name])} />
      {fields.map((field) => (
        <Labeled key={field.name} field={field}>
          <Control
            field={field}
            text={texts[field.name] ?? toFieldText(args[field.name], field.kind)}
            onChange={(text) => onChange(field.name, text)}
          />
        </Labeled>
      ))}
      {invalid !== undefined && (
        <p className="small is-fault" role="alert">
          {t('settings.approval.invalid', { field: invalid })}
        </p>
      )}
    </div>
  );
}

interface LabeledProps {
  readonly field: ArgumentField;
  readonly children: ReactNode;
}

function Labeled({ field: { kind, label, hint }, children }: LabeledProps) {
  // Each of several choices has its own label.
  const Group = kind === 'choices' ? 'fieldset' : 'label';
  const Name = kind === 'choices' ? 'legend' : 'span';
  return (
    <Group className="field">
      <Name dir="auto">{label}</Name>
      {children}
      {kind === 'list' && <span className="hint">{t('chat.question.perLine')}</span>}
      {hint && (
        <span className="hint" dir="auto">
          {hint}
        </span>
      )}
    </Group>
  );
}

interface ControlProps {
  readonly field: ArgumentField;
  readonly text: string;
  readonly onChange: (text: string) => void;
}

/** What is typed into one line if it is secret. */
const LINES: ReadonlySet<ArgumentField['kind']> = new Set(['text', 'long-text', 'date', 'number']);

function Control({ field, text, onChange }: ControlProps) {
  const change = ({ target }: { target: { value: string } }) => onChange(target.value);
  // The host refuses an answer without it.
  const required = field.isRequired && !field.isNullable && field.initial === undefined;
  const shown = { className: 'input', required, value: text, onChange: change };
  if (field.isSecret && LINES.has(field.kind))
    return <input type="password" dir="auto" autoComplete="off" {...shown} />;
  switch (field.kind) {
    case 'text':
    case 'date':
      return <input type={field.kind} dir="auto" {...shown} />;
    case 'number':
      return <input type="number" step="any" {...shown} />;
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
          {(!field.isRequired || field.isNullable) && <option value="">–</option>}
          {field.choices.map(({ value, label }) => (
            <option key={label} value={toFieldText(value, 'choice')}>
              {label}
            </option>
          ))}
        </select>
      );
    case 'choices':
      return <Checkboxes choices={field.choices} text={text} onChange={onChange} />;
    case 'list':
    case 'long-text':
      return <textarea className="input" dir="auto" rows={5} value={text} onChange={change} />;
    case 'json':
      return (
        <textarea
          className="input mono"
          dir="ltr"
          rows={5}
          placeholder={toFieldText(field.example, 'json')}
          value={text}
          onChange={change}
        />
      );
  }
}

function Checkboxes({
  choices,
  text,
  onChange,
}: Omit<ControlProps, 'field'> & { readonly choices: readonly Choice[] }) {
  const chosen = new Set<Json>(text === '' ? [] : JSON.parse(text));
  const toggle = (value: Json) => {
    const next = choices.filter((each) => chosen.has(each.value) !== (each.value === value));
    onChange(
      toFieldText(
        next.map((each) => each.value),
        'choices',
      ),
    );
  };
  return choices.map(({ value, label }) => (
    <label key={label} className="line">
      <input type="checkbox" checked={chosen.has(value)} onChange={() => toggle(value)} />
      <span dir="auto">{label}</span>
    </label>
  ));
}
