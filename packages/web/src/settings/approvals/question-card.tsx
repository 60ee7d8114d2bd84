import type { JsonObject, OracleClientError, Question } from '@sibyl/client';
import { useOracle } from '@sibyl/client/react';
import { type FormEvent, useId, useState } from 'react';
import { useDraft } from '../../chat/drafts.js';
import { t } from '../../i18n/i18n.js';
import { usePage } from '../../page/page-context.js';
import { keepSession } from '../../page/session-marks.js';
import { Icon } from '../../ui/icon.js';
import { showToast } from '../../ui/toasts.js';
import { Failure, useAction } from '../parts.js';
import { Arguments, TimeLeft } from './approval-card.js';
import { ArgumentForm } from './argument-form.js';
import { applyEdits, formatArgument, type InvalidField, listFields } from './arguments.js';

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
  const { draft, change } = useDraft(usePage().signer.did, question.id);
  const answer = (value: unknown) =>
    void run(async () => {
      // Another tab may be about to delete the conversation.
      keepSession(question.sessionId);
      await questions.answer(question.id, value).catch(sayIfClosed);
      change({ text: '' });
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
          schema={question.schema}
          texts={draft.text ? JSON.parse(draft.text) : {}}
          isBusy={isBusy}
          onType={(texts) => change({ text: JSON.stringify(texts) })}
          onAnswer={answer}
        />
        <Failure error={error} />
      </div>
    </article>
  );
}

/** What the tool wrote, if anything: a text, or values with names. */
function Asked({ data }: { readonly data?: unknown }) {
  if (data === undefined || data === null || data === '') return null;
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
  readonly schema: JsonObject;
  /** What the user has typed, by field. */
  readonly texts: Readonly<Record<string, string>>;
  readonly isBusy: boolean;
  readonly onType: (texts: Readonly<Record<string, string>>) => void;
  readonly onAnswer: (value: unknown) => void;
}

/** A form for the answer; two buttons if it is yes or no. */
function Answer({ schema, texts, isBusy, onType, onAnswer }: AnswerProps) {
  const [invalid, setInvalid] = useState<string>();
  const { shape, read } = toObjectSchema(schema);
  const fields = listFields({}, shape);
  const [first, second] = fields;
  if (first?.kind === 'switch' && !second) {
    const { name, hint } = first;
    const choose = (value: boolean) => onAnswer(read({ [name]: value }));
    return <YesOrNo hint={hint} isBusy={isBusy} onChoose={choose} />;
  }
  const initial = Object.fromEntries(
    fields.flatMap(({ name, initial }) => (initial === undefined ? [] : [[name, initial]])),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    try {
      onAnswer(read(applyEdits(initial, fields, texts) ?? initial));
    } catch (error) {
      setInvalid((error as InvalidField).message);
    }
  };
  return (
    <form className="stack" onSubmit={submit}>
      <ArgumentForm
        fields={fields}
        args={initial}
        texts={texts}
        invalid={invalid}
        onChange={(name, text) => {
          onType({ ...texts, [name]: text });
          setInvalid(undefined);
        }}
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
  readonly hint: string | undefined;
  readonly isBusy: boolean;
  readonly onChoose: (value: boolean) => void;
}

const YesOrNo = ({ hint, isBusy, onChoose }: YesOrNoProps) => (
  <>
    {hint && <p dir="auto">{hint}</p>}
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

interface ObjectSchema {
  readonly shape: JsonObject;
  /** The answer that the values of the fields stand for. */
  readonly read: (values: JsonObject) => unknown;
}

/** An answer that is not an object is a form with one field. */
function toObjectSchema(schema: JsonObject): ObjectSchema {
  if (schema.properties) return { shape: schema, read: (values) => values };
  const name = t('chat.question.answer');
  const shape = { properties: { [name]: { title: name, ...schema } }, required: [name] };
  return { shape, read: (values) => values[name] };
}
