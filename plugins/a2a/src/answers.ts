import type { Message } from '@a2a-js/sdk';
import type { CallerTurns, PendingQuestion } from '@sibyl/plugin-kit';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';

/** What a message says. */
export interface Said {
  readonly text: string;
  readonly data: readonly unknown[];
}

export const readSaid = ({ parts }: Message): Said => ({
  text: parts
    .flatMap(({ content }) => (content?.$case === 'text' ? [content.value] : []))
    .join('\n\n')
    .trim(),
  data: parts.flatMap(({ content }) => (content?.$case === 'data' ? [content.value] : [])),
});

/** Names its question, which is needed if there are several. */
const NamedAnswer = z.looseObject({ id: z.string(), value: z.unknown().optional() });
const Approval = z.looseObject({
  approved: z.boolean(),
  reason: z.string().max(1000).optional(),
});
const DENIED = /^(no|deny|denied|reject|rejected|decline|declined|cancel|stop)\b/i;

/**
 * Answers the questions that a turn waits for with a message. Returns the run that continues the turn; undefined if some
 * questions are still open.
 */
export async function answerQuestions(
  turns: CallerTurns,
  questions: readonly PendingQuestion[],
  said: Said,
): Promise<string | undefined> {
  const answers = questions.flatMap((question) => {
    const answer = findAnswer(question, said, questions.length === 1);
    return answer === undefined ? [] : [{ question, answer }];
  });
  if (answers.length === 0) throw new OracleError('bad_request', { message: explain(questions) });
  let runId: string | undefined;
  for (const { question, answer } of answers) {
    const result = await answerQuestion(turns, question, answer);
    runId = result.pending?.length ? undefined : result.runId;
  }
  return runId;
}

const explain = (questions: readonly PendingQuestion[]) =>
  questions.length === 0
    ? 'The task does not wait for an answer any more'
    : `Answer with data parts {"id", "value"}; open questions: ${questions.map(({ id }) => id).join(', ')}`;

type Answer = { readonly value: unknown };

function findAnswer(
  { id, schema }: PendingQuestion,
  said: Said,
  isOnly: boolean,
): Answer | undefined {
  for (const data of said.data) {
    const { data: named } = NamedAnswer.safeParse(data);
    if (named?.id === id) return { value: 'value' in named ? named.value : named };
  }
  if (!isOnly) return undefined;
  const [data] = said.data;
  if (data !== undefined) return { value: data };
  return said.text ? { value: fitText(said.text, schema) } : undefined;
}

const ObjectSchema = z.looseObject({
  type: z.literal('object'),
  properties: z.record(z.string(), z.unknown()),
});
const TextSchema = z.looseObject({ type: z.literal('string') });

/** Clients that only chat answer with a text: as JSON if an object is wanted, or as its only text. */
function fitText(text: string, schema: PendingQuestion['schema']): unknown {
  const { data: wanted } = ObjectSchema.safeParse(schema);
  if (!wanted) return text;
  try {
    return JSON.parse(text);
  } catch {
    const [[name, property] = [], ...others] = Object.entries(wanted.properties);
    const isOnlyText = others.length === 0 && TextSchema.safeParse(property).success;
    return name !== undefined && isOnlyText ? { [name]: text } : text;
  }
}

function answerQuestion(
  turns: CallerTurns,
  { id, isApproval }: PendingQuestion,
  { value }: Answer,
) {
  if (!isApproval) return turns.answer({ id, value });
  const { data } = Approval.safeParse(value);
  const isDenied = data ? !data.approved : typeof value === 'string' && DENIED.test(value);
  if (!isDenied) throw new OracleError('forbidden', { message: SIGN });
  const reason = data?.reason;
  return turns.deny({ id, ...(reason !== undefined && { reason }) });
}

const SIGN =
  'Approving needs the signature of the user: use the page of the oracle. Here the call can be denied.';
