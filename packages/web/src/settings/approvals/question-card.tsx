import type { JsonObject, OracleClientError, Question } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { type FormEvent, useId } from 'react';
import { toTurnForm } from '../../chat/drafts.js';
import { t } from '../../i18n/i18n.js';
import { keepSession } from '../../page/session-marks.js';
import { Icon } from '../../ui/icon.js';
import { showToast } from '../../ui/toasts.js';
import { Failure, useAction } from '../parts.js';
import { Arguments, TimeLeft } from './approval-card.js';
import { ArgumentForm, type Texts, useTyped } from './argument-form.js';
import {
  type ArgumentField,
  applyEdits,
  findFieldLabel,
  formatArgument,
  InvalidField,
  listFields,
} from './arguments.js';

interface QuestionCardProps {
  readonly question: Question;
  /** Called when the answer is stored, or cannot be any more. */
  readonly onAnswered: () => void;
}

/** What a tool asks the user; its turn waits for the answer. */
export function QuestionCard({ question, onAnswered }: QuestionCardProps) {
  const { questions } = useOracle();
  const titleId = useId();
  const { isBusy, error, run } = useAction();
  const { fields, read } = toForm(question.schema);
  const { texts, changeText, clear } = useTyped(
    toTurnForm(question.sessionId, question.id),
    fields,
  );
  const invalid = error instanceof InvalidField ? error.message : undefined;
  const answer = (findValues: () => JsonObject) =>
    void run(async () => {
      const value = read(findValues());
      // Another tab may be about to delete the conversation.
      keepSession(question.sessionId);
      await questions.answer(question.id, value).catch(sayIfClosed);
      clear();
      onAnswered();
    });
  return (
    <article className="approval" aria-labelledby={titleId}>
      <div className="approval-head">
        <Icon name="ask" />
        <h2 className="title-2 grow" id={titleId}>
          {t('chat.question')}
        </h2>
        <TimeLeft expiresAt={question.expiresAt} />
      </div>
      <div className="approval-body">
        <Asked data={question.data} />
        <Answer
          fields={fields}
          isExplained={isExplained(question.data)}
          texts={texts}
          invalid={invalid}
          isBusy={isBusy}
          onType={changeText}
          onAnswer={answer}
        />
        <Failure
          error={invalid === undefined ? error : undefined}
          findLabel={(path) =>
            question.schema.properties ? findFieldLabel(fields, path) : fields[0]?.label
          }
        />
      </div>
    </article>
  );
}

/** An empty object or list says nothing. */
const isExplained = (data: unknown): boolean =>
  typeof data === 'object' && data !== null
    ? Object.keys(data).length > 0
    : data !== undefined && data !== null && data !== '';

/** What the tool wrote, if anything: a text, or values with names. */
function Asked({ data }: { readonly data?: unknown }) {
  if (!isExplained(data)) return null;
  if (isObject(data))
    return <Arguments args={data} edited={undefined} fields={listFields(data, {})} />;
  return (
    <p className="arg-value" dir="auto">
      {formatArgument(data)}
    </p>
  );
}

const isObject = (data: unknown): data is JsonObject =>
  typeof data === 'object' && data !== null && !Array.isArray(data);

function sayIfClosed(error: OracleClientError): void {
  if (error.code !== 'interrupt_closed') throw error;
  showToast({ text: t('chat.error.decided') });
}

interface AnswerProps {
  readonly fields: readonly ArgumentField[];
  /** Whether the tool has said what it asks. */
  readonly isExplained: boolean;
  readonly texts: Texts;
  /** The label of a field whose text cannot be read. */
  readonly invalid: string | undefined;
  readonly isBusy: boolean;
  readonly onType: (name: string, text: string) => void;
  /** The function returns the values of the fields, or throws `InvalidField`. */
  readonly onAnswer: (findValues: () => JsonObject) => void;
}

/** A form for the answer; two buttons if it is yes or no. */
function Answer(props: AnswerProps) {
  const { fields, isExplained, texts, invalid, isBusy, onType, onAnswer } = props;
  const [first, second] = fields;
  if (first?.kind === 'switch' && !second) {
    const { name, label, hint } = first;
    const choose = (value: boolean) => onAnswer(() => ({ [name]: value }));
    const text = hint ?? (isExplained ? undefined : label);
    return <YesOrNo text={text} isBusy={isBusy} onChoose={choose} />;
  }
  const initial = Object.fromEntries(
    fields.flatMap(({ name, initial }) => (initial === undefined ? [] : [[name, initial]])),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onAnswer(() => applyEdits(initial, fields, texts) ?? initial);
  };
  return (
    <form className="stack" onSubmit={submit}>
      <ArgumentForm
        fields={fields}
        args={initial}
        texts={texts}
        invalid={invalid}
        onChange={onType}
      />
      <div className="actions">
        <button type="submit" className="btn btn-primary" disabled={isBusy}>
          {t('chat.form.send')}
        </button>
      </div>
    </form>
  );
}

interface YesOrNoProps {
  readonly text: string | undefined;
  readonly isBusy: boolean;
  readonly onChoose: (value: boolean) => void;
}

const YesOrNo = ({ text, isBusy, onChoose }: YesOrNoProps) => (
  <>
    {text && <p dir="auto">{text}</p>}
    <div className="actions">
      {([true, false] as const).map((value) => (
        <button
          key={String(value)}
          type="button"
          className={value ? 'btn btn-primary' : 'btn'}
          disabled={isBusy}
          onClick={() => onChoose(value)}
        >
          {t(value ? 'chat.question.yes' : 'chat.question.no')}
        </button>
      ))}
    </div>
  </>
);

interface AnswerForm {
  readonly fields: readonly ArgumentField[];
  /** The answer that the values of the fields stand for. */
  readonly read: (values: JsonObject) => unknown;
}

/** An answer that is not an object is a form with one field. */
function toForm(schema: JsonObject): AnswerForm {
  if (schema.properties) return { fields: listFields({}, schema), read: (values) => values };
  const name = t('chat.question.answer');
  const shape = { properties: { [name]: { title: name, ...schema } }, required: [name] };
  return { fields: listFields({}, shape), read: (values) => values[name] };
}
