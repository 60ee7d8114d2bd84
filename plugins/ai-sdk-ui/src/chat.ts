import {
  type CallerTurns,
  type ClientMessage,
  type ClientTool,
  findClientToolCall,
  type OpenInterrupt,
  type SurfaceFile,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import { JsonObject, limitedList, OracleError } from '@sibyl/protocol';
import { z } from 'zod';

const Approval = z.looseObject({
  id: z.string(),
  approved: z.boolean().optional(),
  reason: z.string().optional(),
});

/** A part of a message; the host reads texts and what became of calls. */
const Part = z.looseObject({
  type: z.string(),
  text: z.string().optional(),
  toolCallId: z.string().optional(),
  toolName: z.string().optional(),
  state: z.string().optional(),
  output: z.unknown().optional(),
  errorText: z.string().optional(),
  approval: Approval.optional(),
  url: z.string().optional(),
  filename: z.string().max(255).optional(),
});
type Part = z.infer<typeof Part>;

/** Of all messages of a request together. */
const MAX_PARTS = 10_000;

const Message = z.looseObject({
  id: z.string(),
  role: z.enum(['system', 'user', 'assistant']),
  parts: limitedList(Part, { max: MAX_PARTS }),
});
type Message = z.infer<typeof Message>;

/** Counted before anything else is read: to check many small parts takes long. */
const Messages = z.preprocess(
  (sent, { addIssue }) => {
    if (countParts(sent) <= MAX_PARTS) return sent;
    addIssue({ code: 'custom', message: `may hold at most ${MAX_PARTS} parts together` });
    return z.NEVER;
  },
  limitedList(Message, { min: 1, max: 10_000 }),
);

function countParts(messages: unknown): number {
  if (!Array.isArray(messages)) return 0;
  return messages.reduce<number>(
    (sum, message) => sum + (Array.isArray(message?.parts) ? message.parts.length : 0),
    0,
  );
}

const ClientToolSchema = z.looseObject({
  description: z.string().optional(),
  parameters: JsonObject.optional().describe('JSON Schema of the input'),
  inputSchema: JsonObject.optional().describe('Another name for `parameters`'),
});

/** Body of `POST /ui/chat`: what `DefaultChatTransport` sends, and what its option `body` may add. */
export const ChatRequest = z
  .looseObject({
    id: z.string().min(1).max(200).describe('The chat; it becomes a session on first use'),
    messages: Messages,
    trigger: z.enum(['submit-message', 'regenerate-message']).optional(),
    messageId: z.string().nullish(),
    model: z.string().optional().describe('An id from `/models`'),
    system: z.string().optional().describe('Instructions for this turn'),
    tools: z
      .record(z.string(), ClientToolSchema)
      .optional()
      .describe('Tools that the client runs: name → description and parameters'),
  })
  .meta({ id: 'UiChatRequest' });
export type ChatRequest = z.infer<typeof ChatRequest>;

/** A run whose stream answers a request. */
export interface OpenedChat {
  readonly run: SurfaceRun;
  /** The names of the tools that the client runs; undefined if they are not known. */
  readonly clientTools?: ReadonlySet<string>;
  /** The calls that the client already shows. */
  readonly shownCalls?: ReadonlySet<string>;
  /** Those of them whose outcome it knows. */
  readonly settledCalls?: ReadonlySet<string>;
}

/** Continues the turn that waits for what the last message contains, or answers what is new. */
export async function answerChat(
  turns: CallerTurns,
  body: ChatRequest,
  pageUrl: string,
): Promise<OpenedChat> {
  const last = body.messages.at(-1);
  if (last?.role === 'user') await keepResults(turns, body);
  const calls = last?.role === 'assistant' ? last.parts.filter(isSettled) : [];
  const run =
    (calls.length > 0 ? await continueTurn(turns, body.id, { calls, pageUrl }) : undefined) ??
    (await startTurn(turns, body));
  const isSame = last?.role === 'assistant' && last.id === run.messageId;
  const clientTools = new Set(Object.keys(body.tools ?? {}));
  // A call of a tool of the client that needed an approval: shown, but not to be run.
  const isAsked = ({ type, toolName = '' }: Part) =>
    type === 'dynamic-tool' && clientTools.has(toolName);
  const shown = isSame ? last.parts.filter((part) => !isAsked(part)) : [];
  return {
    run,
    clientTools,
    ...(isSame && {
      shownCalls: new Set(shown.flatMap(({ toolCallId }) => toolCallId ?? [])),
      settledCalls: new Set(calls.flatMap(({ toolCallId }) => toolCallId ?? [])),
    }),
  };
}

const SETTLED = ['output-available', 'output-error', 'approval-responded'];

const isSettled = ({ state = '' }: Part) => SETTLED.includes(state);

interface Outcomes {
  readonly calls: readonly Part[];
  readonly pageUrl: string;
}

/** Undefined if no turn waits for these calls any more. */
async function continueTurn(
  turns: CallerTurns,
  chatId: string,
  { calls, pageUrl }: Outcomes,
): Promise<SurfaceRun | undefined> {
  const sessionId = await turns.findThread(chatId);
  const questions = sessionId === undefined ? [] : await turns.pending(sessionId);
  const outcomes = mapOutcomes(calls);
  const matches = questions.map((question) => [question, findOutcome(question, outcomes)] as const);
  if (matches.every(([, outcome]) => outcome === undefined)) return undefined;
  const missing = matches.find(([, outcome]) => outcome === undefined)?.[0];
  if (missing) throw invalid(`The turn also waits for ${describe(missing)}`);
  let runId = '';
  for (const [question, outcome] of matches)
    if (outcome) ({ runId } = await answer(turns, { question, outcome, pageUrl }));
  return turns.findRun(runId);
}

/** A message that follows results of tools ends the turn that waits for them. */
async function keepResults(turns: CallerTurns, { id, messages }: ChatRequest): Promise<void> {
  const before = messages.at(-2);
  const calls = before?.role === 'assistant' ? before.parts.filter(isSettled) : [];
  const sessionId = calls.length === 0 ? undefined : await turns.findThread(id);
  const questions = sessionId === undefined ? [] : await turns.pending(sessionId);
  const outcomes = mapOutcomes(calls);
  for (const question of questions.filter(({ isApproval }) => !isApproval)) {
    const outcome = findOutcome(question, outcomes);
    if (outcome) await turns.keepResult({ id: question.id, value: toValue(outcome) });
  }
}

/** The first outcome of each call, and of each approval. */
interface OutcomesById {
  readonly calls: ReadonlyMap<string, Part>;
  readonly approvals: ReadonlyMap<string, Part>;
}

function mapOutcomes(parts: readonly Part[]): OutcomesById {
  const [calls, approvals] = [new Map<string, Part>(), new Map<string, Part>()];
  for (const part of parts) {
    const { toolCallId, approval, state } = part;
    if (toolCallId !== undefined && !calls.has(toolCallId)) calls.set(toolCallId, part);
    const isAnswered = approval && state === 'approval-responded';
    if (isAnswered && !approvals.has(approval.id)) approvals.set(approval.id, part);
  }
  return { calls, approvals };
}

function findOutcome(question: OpenInterrupt, { calls, approvals }: OutcomesById) {
  if (question.isApproval) return approvals.get(question.id);
  const call = findClientToolCall(question);
  return call && calls.get(call.toolCallId);
}

const describe = (question: OpenInterrupt): string =>
  question.isApproval
    ? `the approval ${question.id}`
    : `a result of ${findClientToolCall(question)?.toolName}`;

interface Answer {
  readonly question: OpenInterrupt;
  readonly outcome: Part;
  readonly pageUrl: string;
}

function answer(turns: CallerTurns, { question: { id, isApproval }, outcome, pageUrl }: Answer) {
  const { approval } = outcome;
  if (!isApproval) return turns.answer({ id, value: toValue(outcome) });
  if (approval?.approved) throw new OracleError('decision_unsigned', { message: sign(pageUrl) });
  const { reason } = approval ?? {};
  return turns.deny({ id, ...(reason !== undefined && { reason }) });
}

const toValue = ({ state, output, errorText }: Part) =>
  state === 'output-error' ? { error: errorText } : output;

const sign = (pageUrl: string) =>
  `An approval needs your signature: open ${pageUrl} to approve, or deny the call here`;

function startTurn(turns: CallerTurns, body: ChatRequest): Promise<SurfaceRun> {
  const { id, messages, trigger, model } = body;
  const instructions = [
    body.system ?? '',
    ...messages.filter(({ role }) => role === 'system').map(readText),
  ]
    .filter(Boolean)
    .join('\n\n');
  return turns.continueThread({
    threadId: id,
    messages: messages.filter(({ role }) => role !== 'system').map(toClientMessage),
    regenerates: trigger === 'regenerate-message',
    clientTools: listTools(body),
    ...(instructions && { instructions }),
    ...(model !== undefined && { model }),
  });
}

const listTools = ({ tools = {} }: ChatRequest): ClientTool[] =>
  Object.entries(tools).map(([name, { description = '', parameters, inputSchema }]) => {
    return { name, description, schema: parameters ?? inputSchema ?? { type: 'object' } };
  });

function toClientMessage(message: Message): ClientMessage {
  const { id, role } = message;
  const files = role === 'user' ? message.parts.flatMap(toFiles) : [];
  return { id, role: role === 'system' ? 'other' : role, text: readText(message), files };
}

const readText = ({ parts }: Message): string =>
  parts.flatMap(({ type, text }) => (type === 'text' && text ? [text] : [])).join('\n\n');

const toFiles = ({ type, url, filename: name }: Part): SurfaceFile[] =>
  type === 'file' && url ? [{ name, url }] : [];

const invalid = (message: string) => new OracleError('bad_request', { message });
