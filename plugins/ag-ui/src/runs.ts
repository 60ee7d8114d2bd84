import type { Caller } from '@sibyl/plugin-kit';
import {
  type CallerTurns,
  type ClientMessage,
  findClientToolCall,
  type OpenInterrupt,
  RouteReply,
  readAnswer,
  type Surface,
  type SurfaceFile,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import { JsonObject, limitedList, OracleError } from '@sibyl/protocol';
import { z } from 'zod';
import { type KnownCalls, type Reader, streamEvents } from './event-stream.js';
import { type RunView, toEvents } from './events.js';

const Text = z.string().max(100_000);
const Id = z.string().min(1).max(200);
/** Of messages; other lists are shorter. */
const MAX_MESSAGES = 10_000;
const MAX_ENTRIES = 1_000;
const list = <T extends z.ZodType>(entry: T) => limitedList(entry, { max: MAX_ENTRIES });

const Content = z.union([z.string(), list(z.looseObject({ type: z.string() }))]);

const Message = z.looseObject({
  id: Id,
  role: z.string(),
  content: Content.nullish(),
  toolCallId: Id.optional(),
  error: z.string().optional(),
  toolCalls: list(z.looseObject({ id: Id })).nullish(),
});
type Message = z.infer<typeof Message>;

/** A JSON Schema; undefined if it is anything but an object. */
const Parameters = z.preprocess(
  (sent) => (typeof sent === 'object' && sent !== null && !Array.isArray(sent) ? sent : undefined),
  JsonObject.optional(),
);

/** The body of `POST /v2/agent/run`, as AG-UI 1.0 defines it. */
export const RunAgentInput = z
  .looseObject({
    threadId: Id,
    runId: Id,
    protocolVersion: z.string().optional(),
    messages: limitedList(Message, { max: MAX_MESSAGES }),
    tools: list(
      z.looseObject({ name: z.string(), description: Text, parameters: Parameters }),
    ).default([]),
    context: list(z.looseObject({ description: Text, value: Text })).default([]),
    forwardedProps: z.unknown().optional(),
    resume: list(
      z.looseObject({
        interruptId: Id,
        status: z.enum(['resolved', 'cancelled']),
        payload: z.unknown().optional(),
      }),
    ).default([]),
  })
  .meta({ id: 'RunAgentInput' });
export type RunAgentInput = z.infer<typeof RunAgentInput>;

interface RunsDeps {
  readonly surface: Surface;
  readonly pageUrl: string;
}

interface RunCall {
  readonly caller: Caller;
  readonly signal: AbortSignal;
}

/** Runs of AG-UI clients: each is a run of the host, and a thread is a session. */
export class Runs {
  constructor(private readonly deps: RunsDeps) {}

  async start({ caller, signal }: RunCall, input: RunAgentInput): Promise<RouteReply> {
    const turns = this.deps.surface.for(caller, signal);
    const run = (await answerFirst(turns, input)) ?? (await continueOrAnswer(turns, input));
    const { threadId, runId } = input;
    const isBefore1 = input.protocolVersion === undefined;
    const view = { turns, run, threadId, runId, isBefore1 };
    const tools = isBefore1 ? new Set(input.tools.map(({ name }) => name)) : undefined;
    return this.stream(view, { signal, known: listKnown(input), tools });
  }

  /** The events of a run after number `after`. */
  async join(call: RunCall, runId: string, after: number): Promise<RouteReply> {
    const turns = this.deps.surface.for(call.caller);
    const run = await requireRun(turns, runId);
    const threadId = (await turns.findThreadId(run.sessionId)) ?? run.sessionId;
    const view = { turns, run, threadId, runId };
    return this.stream(view, { signal: call.signal, after });
  }

  async cancel({ caller }: RunCall, runId: string): Promise<{ success: boolean }> {
    const turns = this.deps.surface.for(caller);
    await requireRun(turns, runId);
    return { success: await turns.cancel(runId) };
  }

  private stream(
    view: Omit<RunView, 'pageUrl'>,
    { signal, ...reader }: Reader & { readonly signal: AbortSignal },
  ): RouteReply {
    const parts = readAnswer(view.turns, view.run, signal);
    const events = toEvents({ ...view, pageUrl: this.deps.pageUrl }, parts);
    const headers = { 'X-Run-Id': view.run.runId };
    return RouteReply.events(streamEvents(events, view, reader), headers);
  }
}

async function requireRun(turns: CallerTurns, runId: string): Promise<SurfaceRun> {
  const run = await turns.findRun(runId);
  if (!run) throw new OracleError('run_not_found');
  return run;
}

/** Tool calls and results of the turn that the client has: a turn that continues would repeat them. Models may use an id again in another turn. */
function listKnown({ messages }: RunAgentInput): KnownCalls {
  const turn = messages.slice(messages.findLastIndex(({ role }) => role === 'user') + 1);
  return {
    started: new Set(turn.flatMap(({ toolCalls }) => (toolCalls ?? []).map(({ id }) => id))),
    answered: new Set(turn.flatMap(({ toolCallId }) => toolCallId ?? [])),
  };
}

/** Adds the new messages of the user, which cancels open questions, or joins the run that answers them. */
async function continueThread(turns: CallerTurns, input: RunAgentInput): Promise<SurfaceRun> {
  const { threadId, messages, tools } = input;
  const instructions = readInstructions(input);
  const { model, timezone } = ForwardedProps.parse(input.forwardedProps ?? {});
  return turns.continueThread({
    threadId,
    messages: messages.map(toClientMessage),
    clientTools: tools.map(({ name, description, parameters }) => {
      return { name, description, schema: parameters ?? { type: 'object' } };
    }),
    ...(instructions && { instructions }),
    ...(model !== undefined && { model }),
    ...(timezone !== undefined && { timezone }),
  });
}

const ForwardedProps = z
  .object({ model: z.string().optional(), timezone: z.string().optional() })
  .catch({});

function readInstructions({ messages, context }: RunAgentInput): string {
  const said = messages
    .filter(({ role }) => role === 'system' || role === 'developer')
    .map(readText);
  const shown = context.map(({ description, value }) => `${description}: ${value}`);
  return [...said, ...shown].filter(Boolean).join('\n\n');
}

const ROLES: Readonly<Record<string, ClientMessage['role']>> = {
  user: 'user',
  assistant: 'assistant',
};

const toClientMessage = (message: Message): ClientMessage => ({
  id: message.id,
  role: ROLES[message.role] ?? 'other',
  text: readText(message),
  files: message.role === 'user' ? listFiles(message) : [],
});

function readText({ content }: Message): string {
  if (typeof content === 'string') return content;
  return (content ?? []).map(({ text }) => (typeof text === 'string' ? text : '')).join('');
}

const listFiles = ({ content }: Message): SurfaceFile[] =>
  typeof content === 'string'
    ? []
    : (content ?? []).filter(({ type }) => type !== 'text').map(toFile);

/** A part of AG-UI 1.0 with a source, or one of its predecessor, `binary`, with the fields after it. */
const FilePart = z.looseObject({
  source: z
    .looseObject({ type: z.string(), value: z.string(), mimeType: z.string().optional() })
    .optional(),
  mimeType: z.string().optional(),
  filename: z.string().optional(),
  data: z.string().optional(),
  url: z.string().optional(),
});

function toFile(part: { readonly type: string }): SurfaceFile {
  const { source, filename: name, ...binary } = FilePart.safeParse(part).data ?? {};
  const { mimeType = '' } = source ?? binary;
  const data = source?.type === 'data' ? source.value : binary.data;
  if (data !== undefined) return { name, url: `data:${mimeType};base64,${data}` };
  const url = source?.type === 'url' ? source.value : binary.url;
  if (url !== undefined) return { name, url };
  throw invalid(`Content of type ${part.type} needs its bytes or an address`);
}

const invalid = (message: string) => new OracleError('bad_request', { message });

/** Continues a paused turn with the answers in a request; undefined if none of them is awaited, or a message may replace them. */
async function answerFirst(
  turns: CallerTurns,
  input: RunAgentInput,
): Promise<SurfaceRun | undefined> {
  const sessionId = await turns.findThread(input.threadId);
  const pending = sessionId === undefined ? [] : await turns.pending(sessionId);
  return mayLeaveQuestions(input)
    ? keepResults(turns, pending, input)
    : answerQuestions(turns, pending, input);
}

/** If the last message is the one that the paused turn answers, the client has been shown nothing after it, and answers. */
async function continueOrAnswer(turns: CallerTurns, input: RunAgentInput): Promise<SurfaceRun> {
  const run = await continueThread(turns, input);
  if (run.status !== 'paused' || input.resume.length === 0) return run;
  return (await answerQuestions(turns, await turns.pending(run.sessionId), input)) ?? run;
}

async function answerQuestions(
  turns: CallerTurns,
  pending: readonly OpenInterrupt[],
  input: RunAgentInput,
): Promise<SurfaceRun | undefined> {
  let runId: string | undefined;
  let missing: readonly Pick<OpenInterrupt, 'id' | 'kind'>[] = pending;
  for (const question of pending) {
    const answered = await answerQuestion(turns, question, input);
    if (!answered) continue;
    runId = answered.runId;
    missing = answered.pending ?? [];
  }
  if (runId === undefined) return undefined;
  const isPartial = missing.some(({ kind }) => kind !== 'tool_call') && input.resume.length > 0;
  if (isPartial) throw invalid(`Answers are missing: ${missing.map(({ id }) => id)}`);
  // What is left may be new to the client: an interrupted run does not name its tools. The run ends with it once more.
  return requireRun(turns, runId);
}

/** A new message instead of answers cancels what is open. */
const mayLeaveQuestions = ({ messages, resume }: RunAgentInput): boolean =>
  messages.at(-1)?.role === 'user' && resume.every(({ status }) => status === 'cancelled');

async function answerQuestion(
  turns: CallerTurns,
  question: OpenInterrupt,
  { messages, resume }: RunAgentInput,
) {
  const { id, kind, isApproval } = question;
  if (kind === 'tool_call') {
    const result = findResult(question, messages);
    return result && turns.answer({ id, ...result });
  }
  const entry = resume.find(({ interruptId }) => interruptId === id);
  if (!entry) return undefined;
  if (isApproval) return deny(turns, id, entry);
  // Without a new message the question stays open.
  if (entry.status === 'cancelled') return undefined;
  return turns.answer({ id, value: entry.payload });
}

function findResult(question: OpenInterrupt, messages: readonly Message[]) {
  const call = findClientToolCall(question);
  const result = call && messages.findLast(({ toolCallId }) => toolCallId === call.toolCallId);
  return result && { value: result.error ?? readText(result) };
}

/** A message that follows results of tools ends the turn that waits for them. */
async function keepResults(
  turns: CallerTurns,
  pending: readonly OpenInterrupt[],
  { messages }: RunAgentInput,
): Promise<undefined> {
  for (const question of pending) {
    const result = findResult(question, listCurrent(messages));
    if (result) await turns.keepResult({ id: question.id, ...result });
  }
}

/** What follows the last but one message of the user: models may use the id of a call again. */
function listCurrent(messages: readonly Message[]): readonly Message[] {
  const earlier = messages.slice(0, -1);
  return earlier.slice(earlier.findLastIndex(({ role }) => role === 'user') + 1);
}

const Approval = z.looseObject({ approved: z.literal(false), reason: Text.optional() });

function deny(turns: CallerTurns, id: string, entry: RunAgentInput['resume'][number]) {
  const denial = Approval.safeParse(entry.payload);
  if (entry.status === 'resolved' && !denial.success) throw new OracleError('forbidden', SIGN);
  const reason = denial.data?.reason;
  return turns.deny({ id, ...(reason !== undefined && { reason }) });
}

const SIGN = {
  message: "Approving needs the user's signature: use the oracle's page. Here it can be denied.",
};
