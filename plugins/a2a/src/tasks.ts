import {
  type Artifact,
  type Message,
  type Part,
  Role,
  StreamResponse,
  type Task,
  TaskState,
  type TaskStatus,
} from '@a2a-js/sdk';
import type { TurnOutcome } from '@sibyl/plugin-kit';
import {
  type CallerTurns,
  findClientToolCall,
  type NumberedPart,
  type OpenInterrupt,
  readTurn,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import { type DoneFrame, OracleError, type RunStatus } from '@sibyl/protocol';
import { z } from 'zod';

/** A task is a turn. Its id is that of the turn's first run, also after a pause, when another run continues the turn. */
export interface TaskKey {
  readonly id: string;
  /** The session, by the id that its client gave it. */
  readonly contextId: string;
  readonly sessionId: string;
  /** Of the answer, which is the artifact of the task. */
  readonly messageId: string;
}

/** What is known of a task. */
export interface TaskFacts extends TaskKey {
  readonly status: RunStatus;
  /** Milliseconds. */
  readonly updatedAt: number;
  /** The answer, as far as it is stored. */
  readonly text: string;
  readonly error?: TurnOutcome['error'];
  /** What it waits for. */
  readonly questions: readonly OpenInterrupt[];
  readonly pageUrl: string;
}

const STATES: Readonly<Record<RunStatus, TaskState>> = {
  queued: TaskState.TASK_STATE_SUBMITTED,
  running: TaskState.TASK_STATE_WORKING,
  continued: TaskState.TASK_STATE_WORKING,
  paused: TaskState.TASK_STATE_INPUT_REQUIRED,
  finished: TaskState.TASK_STATE_COMPLETED,
  aborted: TaskState.TASK_STATE_CANCELED,
  failed: TaskState.TASK_STATE_FAILED,
  interrupted: TaskState.TASK_STATE_FAILED,
};

const RUN_STATUSES: readonly RunStatus[] = [
  'queued',
  'running',
  'continued',
  'paused',
  'finished',
  'aborted',
  'failed',
  'interrupted',
];

export const toTaskState = (status: RunStatus): TaskState => STATES[status];

export const isOpen = (status: RunStatus): boolean =>
  ['queued', 'running', 'continued', 'paused'].includes(status);

/** The run statuses that a state represents. */
export const toRunStatuses = (state: TaskState): RunStatus[] =>
  RUN_STATUSES.filter((status) => STATES[status] === state);

/** The body of a push notification. */
export const toPushBody = (value: Task): string =>
  JSON.stringify(StreamResponse.toJSON({ payload: { $case: 'task', value } }));

export function buildTask(facts: TaskFacts, history: readonly Message[] = []): Task {
  const { id, contextId, messageId, text } = facts;
  return {
    id,
    contextId,
    status: buildStatus(facts),
    artifacts: text ? [buildArtifact(messageId, text)] : [],
    history: [...history],
    metadata: undefined,
  };
}

function buildStatus(facts: TaskFacts): TaskStatus {
  const { status, updatedAt, error, questions, pageUrl } = facts;
  const failed = status === 'failed' || status === 'interrupted';
  const said = failed ? [toText(error?.message ?? NOT_COMPLETED)] : [];
  const asked = status === 'paused' ? describeQuestions(questions, pageUrl) : [];
  return {
    state: toTaskState(status),
    message: buildMessage(facts, [...said, ...asked]),
    timestamp: new Date(updatedAt).toISOString(),
  };
}

const NOT_COMPLETED = 'The answer was not completed';

const toText = (value: string): Part => ({
  content: { $case: 'text', value },
  metadata: undefined,
  filename: '',
  mediaType: 'text/plain',
});

const toData = (value: object): Part => ({
  content: { $case: 'data', value },
  metadata: undefined,
  filename: '',
  mediaType: 'application/json',
});

/** What the oracle says about the state of a task; undefined if there is nothing to say. */
function buildMessage({ id, contextId, messageId }: TaskKey, parts: Part[]): Message | undefined {
  if (parts.length === 0) return undefined;
  return {
    messageId: `${messageId}-status`,
    contextId,
    taskId: id,
    role: Role.ROLE_AGENT,
    parts,
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
  };
}

const buildArtifact = (artifactId: string, text: string): Artifact => ({
  artifactId,
  name: 'answer',
  description: '',
  parts: [toText(text)],
  metadata: undefined,
  extensions: [],
});

/** Each question as a text for people and as data for programs. */
const describeQuestions = (questions: readonly OpenInterrupt[], pageUrl: string): Part[] =>
  questions.flatMap((question) => {
    const { id, kind, schema, data, expiresAt, isApproval } = question;
    const asked = {
      id,
      kind: isApproval ? 'approval' : kind,
      schema,
      data,
      expiresAt: new Date(expiresAt).toISOString(),
      ...(isApproval && { url: pageUrl }),
    };
    return [toText(describeQuestion(question, pageUrl)), toData(asked)];
  });

const Question = z.object({ message: z.string(), question: z.string() }).partial();

function describeQuestion(question: OpenInterrupt, pageUrl: string): string {
  const { data, isApproval } = question;
  if (isApproval)
    return `A call needs the user's approval: open ${pageUrl} to approve it, or answer "deny" here.`;
  const call = findClientToolCall(question);
  if (call) return `The oracle waits for the result of ${call.toolName}.`;
  if (typeof data === 'string') return data;
  const { message, question: asked } = Question.safeParse(data).data ?? {};
  return message ?? asked ?? 'The oracle needs an answer.';
}

/** An event of a task, and the position to continue after. */
export interface TaskEvent {
  readonly position: string;
  readonly response: StreamResponse;
}

export interface TaskReading {
  readonly turns: CallerTurns;
  readonly pageUrl: string;
  readonly signal: AbortSignal;
}

/** Where to begin, and the text that the client has, if that is known. */
export interface ReadFrom {
  readonly run: SurfaceRun;
  readonly after?: number;
  readonly text?: string | undefined;
}

/** The events of a task until it ends or waits, over all its runs. */
export async function* readEvents(
  reading: TaskReading,
  task: TaskKey,
  { run, after = 0, text }: ReadFrom,
): AsyncGenerator<TaskEvent> {
  const { turns, signal } = reading;
  const mapping = new TaskMapping(reading, task, text);
  for await (const { runId, part } of readTurn(turns, { runId: run.runId, after, signal })) {
    const position = `${runId}:${part.seq}`;
    for (const response of mapping.map(part)) yield { position, response };
    if (part.event === 'done') yield { position, response: await mapping.end(part.data) };
  }
}

/** The run and frame of a position, if it belongs to one of these runs. */
export function findPosition(
  position: string | undefined,
  attempts: readonly SurfaceRun[],
): ReadFrom | undefined {
  const [, runId, seq] = /^([\w-]+):(\d{1,15})$/.exec(position ?? '') ?? [];
  const run = attempts.find((attempt) => attempt.runId === runId);
  return run && { run, after: Number(seq) };
}

class TaskMapping {
  private failure: string | undefined;

  constructor(
    private readonly reading: TaskReading,
    private readonly task: TaskKey,
    /** What the client has of the answer; undefined if it joined in the middle. */
    private text: string | undefined,
  ) {}

  *map(part: NumberedPart): Generator<StreamResponse> {
    switch (part.event) {
      case 'run':
        return yield* this.begin(part.data.resumed ? part.data.partialLength : undefined);
      case 'message': {
        const isFirst = this.text === '';
        this.text = this.text === undefined ? undefined : this.text + part.data.content;
        return yield this.toArtifactUpdate(part.data.content, !isFirst);
      }
      case 'tool_call':
        if (part.data.status === 'isRunning')
          yield this.say(`The oracle uses ${part.data.toolName}`);
        return;
      case 'warning':
        return yield this.say(part.data.message);
      case 'error':
        this.failure = part.data.error;
        return;
      default:
        // The rest is for pages.
        return;
    }
  }

  /** The last event: the task has ended, or waits for an answer. */
  async end({ status, pending = [] }: DoneFrame): Promise<StreamResponse> {
    const { turns, pageUrl } = this.reading;
    const isWaiting = pending.length > 0;
    const facts = {
      ...this.task,
      status: isWaiting ? 'paused' : status,
      updatedAt: Date.now(),
      text: '',
      questions: isWaiting ? await turns.pending(this.task.sessionId) : [],
      pageUrl,
      ...(this.failure !== undefined && { error: { code: status, message: this.failure } }),
    } as const;
    return this.toStatusUpdate(buildStatus(facts));
  }

  /** Another host may continue with less than the client has seen. */
  private *begin(kept: number | undefined): Generator<StreamResponse> {
    yield this.toStatusUpdate(this.buildWorking());
    if (kept === undefined || this.text === undefined || kept >= this.text.length) return;
    this.text = this.text.slice(0, kept);
    yield this.toArtifactUpdate(this.text, false);
  }

  private say(text: string): StreamResponse {
    return this.toStatusUpdate(this.buildWorking([toText(text)]));
  }

  private buildWorking(parts: Part[] = []): TaskStatus {
    return {
      state: TaskState.TASK_STATE_WORKING,
      message: buildMessage(this.task, parts),
      timestamp: new Date().toISOString(),
    };
  }

  private toStatusUpdate(status: TaskStatus): StreamResponse {
    const { id: taskId, contextId } = this.task;
    const value = { taskId, contextId, status, metadata: undefined };
    return { payload: { $case: 'statusUpdate', value } };
  }

  private toArtifactUpdate(text: string, append: boolean): StreamResponse {
    const { id: taskId, contextId, messageId } = this.task;
    const artifact = buildArtifact(messageId, text);
    const value = { taskId, contextId, artifact, append, lastChunk: false, metadata: undefined };
    return { payload: { $case: 'artifactUpdate', value } };
  }
}

/** What a message says. */
interface Said {
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
  questions: readonly OpenInterrupt[],
  said: Said,
): Promise<string | undefined> {
  const named = mapAnswers(said.data);
  const isOnly = questions.length === 1;
  const answers = questions.flatMap((question) => {
    const answer = named.get(question.id) ?? (isOnly ? findOnlyAnswer(question, said) : undefined);
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

const explain = (questions: readonly OpenInterrupt[]) =>
  questions.length === 0
    ? 'The task does not wait for an answer any more'
    : `Answer with data parts {"id", "value"}; open questions: ${questions.map(({ id }) => id).join(', ')}`;

type Answer = { readonly value: unknown };

/** The answers that name their question, which is needed if there are several; the first one of a question counts. */
function mapAnswers(data: readonly unknown[]): Map<unknown, Answer> {
  const answers = new Map<unknown, Answer>();
  for (const part of data) {
    if (typeof part !== 'object' || part === null || !('id' in part)) continue;
    const { id } = part;
    if (!answers.has(id)) answers.set(id, { value: 'value' in part ? part.value : part });
  }
  return answers;
}

function findOnlyAnswer({ schema }: OpenInterrupt, { data, text }: Said): Answer | undefined {
  const [first] = data;
  if (first !== undefined) return { value: first };
  return text ? { value: fitText(text, schema) } : undefined;
}

const ObjectSchema = z.looseObject({
  type: z.literal('object'),
  properties: z.record(z.string(), z.unknown()),
});
const TextSchema = z.looseObject({ type: z.literal('string') });

/** Clients that only chat answer with a text: as JSON if an object is wanted, or as its only text. */
function fitText(text: string, schema: OpenInterrupt['schema']): unknown {
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

function answerQuestion(turns: CallerTurns, { id, isApproval }: OpenInterrupt, { value }: Answer) {
  if (!isApproval) return turns.answer({ id, value });
  const { data } = Approval.safeParse(value);
  const isDenied = data ? !data.approved : typeof value === 'string' && DENIED.test(value);
  if (!isDenied) throw new OracleError('forbidden', { message: SIGN });
  const reason = data?.reason;
  return turns.deny({ id, ...(reason !== undefined && { reason }) });
}

const SIGN =
  'Approving needs the signature of the user: use the page of the oracle. Here the call can be denied.';
