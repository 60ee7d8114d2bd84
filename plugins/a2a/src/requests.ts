import { createHash } from 'node:crypto';
import type {
  AgentCard,
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTaskPushNotificationConfigsResponse,
  ListTasksRequest,
  ListTasksResponse,
  Message,
  Part,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
  TaskPushNotificationConfig,
} from '@a2a-js/sdk';
import { Role } from '@a2a-js/sdk';
import {
  RequestMalformedError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from '@a2a-js/sdk/errors';
import { type A2ARequestHandler, ServerCallContext } from '@a2a-js/sdk/server';
import type { Caller, DelegatedTurns } from '@sibyl/plugin-kit';
import type { CallerTurns, Surface, SurfaceFile, SurfaceRun } from '@sibyl/plugin-kit/surface';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';
import { type PushNotifications, parseConfig } from './push-notifications.js';
import {
  answerQuestions,
  buildTask,
  findPosition,
  isOpen,
  type ReadFrom,
  readEvents,
  readSaid,
  type TaskEvent,
  type TaskFacts,
  toRunStatuses,
} from './tasks.js';

export interface RequestDeps {
  readonly surface: Surface;
  readonly turns: Pick<DelegatedTurns, 'outcome'>;
  readonly push: PushNotifications;
  readonly publicUrl: string;
  readonly pageUrl: string;
  readonly name: string;
  readonly description: string;
}

/** A request of a client, as the SDK passes it on. */
export class A2aCall extends ServerCallContext {
  readonly turns: CallerTurns;
  /** The position of the event that was read last. */
  position = '';

  constructor(
    surface: Surface,
    readonly caller: Caller,
    readonly signal: AbortSignal,
    /** Where the client wants to continue. */
    readonly lastPosition: string | undefined,
  ) {
    super();
    this.turns = surface.for(caller, signal);
  }
}

function readCall(context: ServerCallContext): A2aCall {
  if (context instanceof A2aCall) return context;
  throw new TypeError('Every request has a call');
}

/** A message that was accepted, and where its events begin. */
interface Accepted {
  readonly taskId: string;
  /** Undefined if the task still waits. */
  readonly from: ReadFrom | undefined;
}

/** Answers the requests of A2A clients with turns of the caller. */
export class A2aRequests implements A2ARequestHandler {
  constructor(
    private readonly deps: RequestDeps,
    /** For the interface of the SDK. */
    readonly getAgentCard: () => Promise<AgentCard>,
  ) {}

  async getAuthenticatedExtendedAgentCard(): Promise<never> {
    throw new UnsupportedOperationError('The public card has everything');
  }

  async sendMessage(params: SendMessageRequest, context: ServerCallContext): Promise<Task> {
    const call = readCall(context);
    const { taskId, from } = await this.accept(call, params);
    if (from && params.configuration?.returnImmediately !== true)
      for await (const _ of this.read(call, await this.describe(call, taskId), from));
    const task = await this.describe(call, taskId);
    return buildTask(task, listHistory(params, task));
  }

  async *sendMessageStream(
    params: SendMessageRequest,
    context: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const call = readCall(context);
    const { taskId, from } = await this.accept(call, params);
    const task = await this.describe(call, taskId);
    // What is stored of a new answer arrives again as events.
    const text = from?.text ?? '';
    yield {
      payload: { $case: 'task', value: buildTask({ ...task, text }, listHistory(params, task)) },
    };
    if (from) yield* this.stream(call, task, { ...from, text });
  }

  async *resubscribe(
    { id }: SubscribeToTaskRequest,
    context: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const call = readCall(context);
    const attempts = await requireAttempts(call, id);
    const task = await this.describe(call, id);
    if (!isOpen(task.status)) throw new UnsupportedOperationError(`Task ${id} has ended: get it`);
    const [first] = attempts;
    const from = findPosition(call.lastPosition, attempts) ?? { run: first, text: '' };
    yield { payload: { $case: 'task', value: buildTask({ ...task, text: '' }) } };
    yield* this.stream(call, task, from);
  }

  async getTask({ id, historyLength }: GetTaskRequest, context: ServerCallContext): Promise<Task> {
    assertHistoryLength(historyLength);
    const call = readCall(context);
    const task = await this.describe(call, id);
    if (task.status !== 'running') return buildTask(task);
    const latest = (await requireAttempts(call, id)).at(-1);
    if (!latest) return buildTask(task);
    return buildTask({ ...task, text: await readPartialText(call.turns, latest, task.text) });
  }

  async listTasks(
    params: ListTasksRequest,
    context: ServerCallContext,
  ): Promise<ListTasksResponse> {
    const call = readCall(context);
    const { sessions } = call.turns;
    if (!sessions)
      throw new OracleError('access_key_too_narrow', { message: 'An access key lists no tasks' });
    const { contextId } = params;
    const { limit: pageSize, ...query } = readListQuery(params);
    const sessionId = contextId ? await call.turns.findThread(contextId) : undefined;
    if (contextId && !sessionId) return { tasks: [], nextPageToken: '', pageSize, totalSize: 0 };
    const page = await sessions.turns({
      ...query,
      limit: pageSize,
      ...(sessionId !== undefined && { sessionId }),
    });
    const tasks: Task[] = [];
    for (const { first, latest } of page.turns) {
      const task = await this.describeRun(call, { id: first.runId, latest });
      tasks.push(buildTask(params.includeArtifacts ? task : { ...task, text: '' }));
    }
    return { tasks, nextPageToken: page.next ?? '', pageSize, totalSize: page.total };
  }

  async cancelTask({ id }: CancelTaskRequest, context: ServerCallContext): Promise<Task> {
    const call = readCall(context);
    const { turns, signal } = call;
    const task = await this.describe(call, id);
    if (task.status === 'aborted') return buildTask(task);
    const latest = (await requireAttempts(call, id)).at(-1);
    if (!latest || !isOpen(task.status)) throw new TaskNotCancelableError(`Task ${id} has ended`);
    if (await turns.cancel(latest.runId))
      for await (const _ of turns.read(latest.runId, { signal }));
    await this.deps.push.wake({ owner: call.caller.did, taskId: task.id });
    const canceled = await this.describe(call, id);
    if (canceled.status === 'aborted') return buildTask(canceled);
    throw new TaskNotCancelableError(`Task ${id} ended before it could be canceled`);
  }

  async createTaskPushNotificationConfig(
    params: TaskPushNotificationConfig,
    context: ServerCallContext,
  ): Promise<TaskPushNotificationConfig> {
    const call = readCall(context);
    const task = await this.describe(call, params.taskId);
    return this.deps.push.add(call.turns.accessForLater(), task, params);
  }

  async getTaskPushNotificationConfig(
    { taskId, id }: GetTaskPushNotificationConfigRequest,
    context: ServerCallContext,
  ): Promise<TaskPushNotificationConfig> {
    const { configs } = await this.listTaskPushNotificationConfigs({ taskId }, context);
    const config = configs.find((each) => each.id === id);
    if (!config)
      throw new TaskNotFoundError(`Task ${taskId} has no push notification config ${id}`);
    return config;
  }

  async listTaskPushNotificationConfigs(
    { taskId }: Pick<ListTaskPushNotificationConfigsRequest, 'taskId'>,
    context: ServerCallContext,
  ): Promise<ListTaskPushNotificationConfigsResponse> {
    const call = readCall(context);
    const { id } = await this.describe(call, taskId);
    const configs = await this.deps.push.list({ owner: call.caller.did, taskId: id });
    return { configs: [...configs], nextPageToken: '' };
  }

  async deleteTaskPushNotificationConfig(
    { taskId, id }: DeleteTaskPushNotificationConfigRequest,
    context: ServerCallContext,
  ): Promise<void> {
    const call = readCall(context);
    const task = await this.describe(call, taskId);
    await this.deps.push.remove({ owner: call.caller.did, taskId: task.id, id });
  }

  /** Starts a turn, or answers what the task of the message waits for. */
  private async accept(call: A2aCall, params: SendMessageRequest): Promise<Accepted> {
    const { message, configuration } = params;
    if (!message?.messageId) throw new RequestMalformedError('message.messageId is required');
    if (message.role === Role.ROLE_AGENT)
      throw new RequestMalformedError('message.role must be ROLE_USER');
    if (message.parts.length > MAX_PARTS)
      throw new RequestMalformedError(`message.parts may hold at most ${MAX_PARTS} parts`);
    assertHistoryLength(configuration?.historyLength);
    const push = configuration?.taskPushNotificationConfig;
    // Before anything happens.
    const access = push && call.turns.accessForLater();
    if (push) parseConfig(push);
    const accepted = message.taskId
      ? await this.answer(call, message)
      : await this.start(call, message, params.metadata);
    if (push && access)
      await this.deps.push.add(access, await this.describe(call, accepted.taskId), push);
    return accepted;
  }

  private async start(
    { turns }: A2aCall,
    message: Message,
    metadata: SendMessageRequest['metadata'],
  ): Promise<Accepted> {
    const { text, files } = readContent(message);
    const threadId = await chooseThread(turns, message);
    const { model, timezone } = Choices.parse(metadata ?? {});
    const run = await turns.continueThread({
      threadId,
      messages: [{ id: message.messageId, role: 'user', text, files }],
      ...(model !== undefined && { model }),
      ...(timezone !== undefined && { timezone }),
    });
    const [first = run] = await turns.listAttempts(run.runId);
    return { taskId: first.runId, from: { run: first } };
  }

  private async answer(call: A2aCall, message: Message): Promise<Accepted> {
    const { turns, caller } = call;
    const task = await this.describe(call, message.taskId);
    const { id: taskId } = task;
    if (message.contextId && message.contextId !== task.contextId)
      throw new RequestMalformedError(`Task ${taskId} belongs to another context`);
    if (task.status !== 'paused')
      throw new UnsupportedOperationError(
        isOpen(task.status)
          ? `Task ${taskId} is working: wait for it, cancel it, or send the message without taskId`
          : `Task ${taskId} has ended: send the message without taskId`,
      );
    const runId = await answerQuestions(turns, task.questions, readSaid(message));
    await this.deps.push.wake({ owner: caller.did, taskId });
    const run = runId === undefined ? undefined : await turns.findRun(runId);
    return { taskId, from: run && { run, text: task.text } };
  }

  private async *stream(
    call: A2aCall,
    task: TaskFacts,
    from: ReadFrom,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    for await (const { position, response } of this.read(call, task, from)) {
      call.position = position;
      yield response;
    }
  }

  private read(call: A2aCall, task: TaskFacts, from: ReadFrom): AsyncGenerator<TaskEvent> {
    const { turns, signal } = call;
    return readEvents({ turns, signal, pageUrl: this.deps.pageUrl }, task, from);
  }

  /** A task by the id of any of its runs; throws if the caller has none with this id. */
  private async describe(call: A2aCall, id: string): Promise<TaskFacts> {
    const attempts = await requireAttempts(call, id);
    const [first] = attempts;
    return this.describeRun(call, { id: first.runId, latest: attempts.at(-1) ?? first });
  }

  private async describeRun(
    { turns, caller }: A2aCall,
    { id, latest }: { readonly id: string; readonly latest: SurfaceRun },
  ): Promise<TaskFacts> {
    const { runId, sessionId, updatedAt, messageId } = latest;
    const outcome = await this.deps.turns.outcome({ owner: caller.did, runId });
    const { status = latest.status, text = '', error } = outcome ?? {};
    return {
      id,
      sessionId,
      contextId: (await turns.findThreadId(sessionId)) ?? sessionId,
      messageId,
      status,
      updatedAt,
      text,
      error,
      questions: status === 'paused' ? await turns.pending(sessionId) : [],
      pageUrl: this.deps.pageUrl,
    };
  }
}

/** Of a message. */
const MAX_PARTS = 1000;
const DEFAULT_PAGE_SIZE = 50;
const MAX_PAGE_SIZE = 100;

async function requireAttempts(
  { turns }: A2aCall,
  id: string,
): Promise<readonly [SurfaceRun, ...SurfaceRun[]]> {
  if (!id) throw new RequestMalformedError('The id of the task is required');
  const [first, ...others] = await turns.listAttempts(id);
  if (!first) throw new TaskNotFoundError(`Task not found: ${id}`);
  return [first, ...others];
}

/** What a run has written, after what earlier attempts of its turn have left in the answer. */
async function readPartialText(
  turns: CallerTurns,
  { runId }: SurfaceRun,
  answer: string,
): Promise<string> {
  let text = '';
  for await (const part of turns.readStored(runId)) {
    if (part.event === 'run' && part.data.resumed) text = answer.slice(0, part.data.partialLength);
    if (part.event === 'message') text += part.data.content;
  }
  return text;
}

/** The host keeps the conversation in the session; a task shows only the message that began it, in the reply to it. */
function listHistory({ message, configuration }: SendMessageRequest, task: TaskFacts): Message[] {
  if (!message || configuration?.historyLength === 0) return [];
  return [{ ...message, taskId: task.id, contextId: task.contextId }];
}

function assertHistoryLength(length: number | undefined): void {
  if (length !== undefined && length < 0)
    throw new RequestMalformedError('historyLength must not be negative');
}

function readListQuery(params: ListTasksRequest) {
  const { pageSize: limit = DEFAULT_PAGE_SIZE, pageToken: before, status } = params;
  if (limit < 1 || limit > MAX_PAGE_SIZE)
    throw new RequestMalformedError(`pageSize must be between 1 and ${MAX_PAGE_SIZE}`);
  const updatedAfter = readTime(params.statusTimestampAfter);
  return {
    limit,
    ...(before && { before }),
    ...(status > 0 && { statuses: toRunStatuses(status) }),
    ...(updatedAfter !== undefined && { updatedAfter }),
  };
}

function readTime(text: string | undefined): number | undefined {
  if (!text) return undefined;
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw new RequestMalformedError('statusTimestampAfter must be a date');
  return time;
}

/** A message without a context begins one, which the repeated message finds again. A key for one session has no other. */
async function chooseThread(
  turns: CallerTurns,
  { contextId, messageId }: Message,
): Promise<string> {
  const { onlySession } = turns;
  if (onlySession === undefined) return contextId || `ctx-${hash(messageId)}`;
  const known = [onlySession, await turns.findThreadId(onlySession)];
  if (!contextId || known.includes(contextId)) return onlySession;
  throw new OracleError('access_key_too_narrow');
}

const hash = (text: string) => createHash('sha256').update(text).digest('base64url');

const Choices = z
  .object({ model: z.string().optional(), timezone: z.string().optional() })
  .catch({});

/** The text of a message, with its data as JSON, and its files. */
function readContent({ parts }: Message): { text: string; files: SurfaceFile[] } {
  const text = parts.flatMap(toTexts).join('\n\n').trim();
  const files = parts.flatMap(toFiles);
  if (!text && files.length === 0) throw new RequestMalformedError('The message is empty');
  return { text, files };
}

const toTexts = ({ content }: Part): string[] =>
  content?.$case === 'text'
    ? [content.value]
    : content?.$case === 'data'
      ? [JSON.stringify(content.value)]
      : [];

function toFiles({ content, filename }: Part): SurfaceFile[] {
  const name = filename || undefined;
  switch (content?.$case) {
    case 'raw':
      return [{ name, data: content.value }];
    case 'url':
      return [{ name, url: content.value }];
    default:
      return [];
  }
}
