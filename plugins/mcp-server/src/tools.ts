import type {
  CallToolResult,
  McpServer,
  ResourceTemplate,
  ServerContext,
} from '@modelcontextprotocol/server';
import type { Logger } from '@sibyl/plugin-kit';
import {
  type CallerSessions,
  type CallerTurns,
  type NumberedPart,
  type OpenInterrupt,
  readAnswer,
  type Surface,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import { OracleError } from '@sibyl/protocol';
import { z } from 'zod';
import { SESSION_URI } from './subscriptions.js';

export interface ToolDeps {
  readonly ResourceTemplate: typeof ResourceTemplate;
  readonly turns: CallerTurns;
  readonly surface: Pick<Surface, 'toError'>;
  readonly pageUrl: string;
  readonly logger: Logger;
  /** Receives where the answer of a call is stored, for a client that loses its connection. */
  readonly onPosition?: ((position: AnswerPosition) => void) | undefined;
}

/** Where an answer can be read again, and which request it answers. */
const AnswerPosition = z.object({
  runId: z.string().max(100),
  /** The last frame of the answer that the client knows. */
  seq: z.int().min(0),
  id: z.union([z.string(), z.number()]),
  token: z.union([z.string(), z.number()]).optional(),
});
export type AnswerPosition = z.infer<typeof AnswerPosition>;

export const formatPosition = (position: AnswerPosition): string =>
  Buffer.from(JSON.stringify(position)).toString('base64url');

export function parsePosition(text: string | undefined): AnswerPosition | undefined {
  try {
    return AnswerPosition.parse(JSON.parse(Buffer.from(text ?? '', 'base64url').toString()));
  } catch {
    return undefined;
  }
}

const SessionId = z.string().max(100);

const AskInput = z.strictObject({
  message: z.string().min(1).max(200_000).describe('The question or task for the oracle'),
  session_id: SessionId.optional().describe(
    'Continues a conversation; without it, a new one begins, and the result has its id',
  ),
  model: z.string().max(200).optional().describe('Default: the one that the operator chose'),
});

const ReadAnswerInput = z.strictObject({ session_id: SessionId });

const Answer = z.object({
  session_id: z.string(),
  status: z.enum(['finished', 'waiting', 'aborted', 'interrupted', 'failed']),
  answer: z.string().describe('As far as it came'),
  url: z.string().optional().describe('Where the user answers what the oracle waits for'),
});
type Answer = z.infer<typeof Answer>;

/** The tools of a client. Those that list and read conversations need a UCAN. */
export function registerTools(server: McpServer, deps: ToolDeps): void {
  server.registerTool(
    'ask',
    {
      title: 'Ask the oracle',
      description: 'Sends a message to the oracle and returns its answer.',
      inputSchema: AskInput,
      outputSchema: Answer,
      annotations: { openWorldHint: true },
    },
    (input, { mcpReq }) => reply(deps, () => ask(deps, input, mcpReq)),
  );
  server.registerTool(
    'read_answer',
    {
      title: 'Read the last answer',
      description:
        'Returns the last answer in a conversation, and waits while it is being written: after a lost connection, or after the user has answered on the page.',
      inputSchema: ReadAnswerInput,
      outputSchema: Answer,
      annotations: { readOnlyHint: true },
    },
    ({ session_id }, { mcpReq }) => reply(deps, () => readLastAnswer(deps, session_id, mcpReq)),
  );
  const { sessions } = deps.turns;
  if (!sessions) return;
  registerSessionTools(server, deps, sessions);
  registerSessionResources(server, deps, sessions);
}

const ListInput = z.strictObject({
  limit: z.int().min(1).max(100).default(20),
  offset: z.int().min(0).default(0),
});

const SessionList = z.object({
  sessions: z.array(
    z.object({ session_id: z.string(), title: z.string(), updated_at: z.string() }),
  ),
  total: z.int(),
});

const ReadInput = z.strictObject({
  session_id: SessionId,
  limit: z.int().min(1).max(50).default(20).describe('How many turns, the newest ones'),
  before: z.string().max(100).optional().describe('A message: those before it'),
});

const Transcript = z.object({
  messages: z.array(
    z.object({
      id: z.string(),
      role: z.enum(['user', 'assistant']),
      text: z.string(),
      created_at: z.string(),
    }),
  ),
  has_older: z.boolean(),
});

/** Each conversation is a resource, whose changes a client can subscribe to. */
function registerSessionResources(
  server: McpServer,
  deps: ToolDeps,
  sessions: CallerSessions,
): void {
  const { ResourceTemplate } = deps;
  const mimeType = 'application/json';
  const list = async () => {
    const page = { limit: 100, offset: 0 };
    const { sessions: listed } = await hideBugs(deps, () => sessions.list(page));
    const resources = listed.map(({ sessionId, title: name }) => {
      return { uri: `${SESSION_URI}${sessionId}`, name, mimeType };
    });
    return { resources };
  };
  server.registerResource(
    'session',
    new ResourceTemplate(`${SESSION_URI}{session_id}`, { list }),
    { title: 'A conversation', description: 'The newest messages of a conversation', mimeType },
    async ({ href: uri }, { session_id }) => {
      const page = { session_id: String(session_id), limit: 50 };
      const read = await hideBugs(deps, () => readSession(sessions, page));
      return { contents: [{ uri, mimeType, text: JSON.stringify(read) }] };
    },
  );
}

function registerSessionTools(server: McpServer, deps: ToolDeps, sessions: CallerSessions): void {
  server.registerTool(
    'list_sessions',
    {
      title: 'List conversations',
      description: "The user's conversations with the oracle, newest first.",
      inputSchema: ListInput,
      outputSchema: SessionList,
      annotations: { readOnlyHint: true },
    },
    (page) => reply(deps, async () => toResult(await listSessions(sessions, page))),
  );
  server.registerTool(
    'read_session',
    {
      title: 'Read a conversation',
      description: 'The messages of a conversation, oldest first.',
      inputSchema: ReadInput,
      outputSchema: Transcript,
      annotations: { readOnlyHint: true },
    },
    (page) => reply(deps, async () => toResult(await readSession(sessions, page))),
  );
}

async function listSessions(
  sessions: CallerSessions,
  page: z.infer<typeof ListInput>,
): Promise<z.infer<typeof SessionList>> {
  const { sessions: listed, total } = await sessions.list(page);
  return {
    sessions: listed.map(({ sessionId, title, lastUpdatedAt }) => {
      return { session_id: sessionId, title, updated_at: lastUpdatedAt };
    }),
    total,
  };
}

async function readSession(
  sessions: CallerSessions,
  { session_id: sessionId, ...page }: z.infer<typeof ReadInput>,
): Promise<z.infer<typeof Transcript>> {
  const { messages, hasOlder } = await sessions.messages({ sessionId, ...page });
  return {
    messages: messages.map(({ id, type, content, createdAt }) => {
      const role = type === 'human' ? 'user' : 'assistant';
      return { id, role, text: content, created_at: createdAt };
    }),
    has_older: hasOlder,
  };
}

/** An error is a result too: the model of the client reads it. */
async function reply(deps: ToolDeps, task: () => Promise<CallToolResult>): Promise<CallToolResult> {
  return hideBugs(deps, task).catch(({ message, code }: OracleError) => {
    return { isError: true, content: [{ type: 'text', text: `${message} (${code})` }] };
  });
}

/** Throws errors of the catalog only: the SDK sends the text of any other one to the client, such as the address of the database. */
export async function hideBugs<T>(
  { logger, surface }: Pick<ToolDeps, 'logger' | 'surface'>,
  task: () => Promise<T>,
): Promise<T> {
  try {
    return await task();
  } catch (error) {
    const known = surface.toError(error);
    if (known.code === 'internal_error')
      logger.error({ err: error }, 'a request of an MCP client failed');
    throw known;
  }
}

const toResult = (value: Record<string, unknown>): CallToolResult => ({
  content: [{ type: 'text', text: JSON.stringify(value) }],
  structuredContent: value,
});

type McpRequest = ServerContext['mcpReq'];

async function ask(
  deps: ToolDeps,
  { message, session_id, model }: z.infer<typeof AskInput>,
  request: McpRequest,
): Promise<CallToolResult> {
  const { turns } = deps;
  const { signal } = request;
  const sessionId = await chooseSession(turns, session_id);
  // A call that waited for others could not be cancelled alone.
  const turn = { sessionId, message, multitask: 'reject' } as const;
  const run = await turns.start({ ...turn, ...(model !== undefined && { model }) });
  const cancel = () => void abort(deps, run);
  signal.addEventListener('abort', cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    return await follow(deps, run, { request, signal });
  } catch (error) {
    // Its client learns that the call was refused, so nothing of it may continue.
    if (error instanceof OracleError && error.code === 'too_many_streams') cancel();
    throw error;
  } finally {
    // The end of the exchange also fires it, and a turn that waits for its user must continue.
    signal.removeEventListener('abort', cancel);
  }
}

async function chooseSession(turns: CallerTurns, named: string | undefined): Promise<string> {
  const sessionId = named ?? turns.onlySession ?? (await turns.openSession()).sessionId;
  if (!(await turns.hasSession(sessionId))) throw new OracleError('session_not_found');
  return sessionId;
}

async function abort({ turns, logger }: ToolDeps, { runId }: SurfaceRun): Promise<void> {
  try {
    await turns.cancel(runId);
  } catch (err) {
    logger.warn({ err, runId }, 'a turn that an MCP client cancelled could not be aborted');
  }
}

async function readLastAnswer(
  deps: ToolDeps,
  sessionId: string,
  request: McpRequest,
): Promise<CallToolResult> {
  const run = await deps.turns.currentRun(sessionId);
  if (!run) throw new OracleError('session_not_found');
  return follow(deps, run, { request, signal: request.signal });
}

export interface Reading {
  readonly request: Pick<McpRequest, 'id' | '_meta' | 'notify'>;
  readonly signal: AbortSignal;
  /** The last frame that the client knows. */
  readonly after?: number;
}

/** Reports progress until the run ends, and returns its answer. */
export async function follow(
  { turns, pageUrl, onPosition }: ToolDeps,
  run: SurfaceRun,
  { request, signal, after = 0 }: Reading,
): Promise<CallToolResult> {
  const { id, _meta } = request;
  const { runId, sessionId } = run;
  const report = createReporter(request);
  const answer: Answer = { session_id: sessionId, status: 'aborted', answer: '' };
  let note: string | undefined;
  for await (const { part, text } of readAnswer(turns, run, signal)) {
    onPosition?.({ runId, seq: part.seq, id, token: _meta?.progressToken });
    if (part.seq > after) await report(part);
    answer.answer = text;
    if (part.event === 'run') note = undefined;
    if (part.event === 'error') note = part.data.error;
    if (part.event !== 'done') continue;
    const { status, pending = [] } = part.data;
    answer.status = status;
    if (pending.length === 0) continue;
    answer.status = 'waiting';
    answer.url = pageUrl;
    note = describeQuestions(await turns.pending(sessionId), pageUrl);
  }
  return toAnswer(answer, note);
}

function toAnswer(answer: Answer, note: string | undefined): CallToolResult {
  const isError = answer.status !== 'finished' && answer.status !== 'waiting';
  const why = note ?? (isError ? `The answer is not complete: ${answer.status}` : undefined);
  const texts = [answer.answer, why, `session_id: ${answer.session_id}`].filter(Boolean);
  return {
    content: texts.map((text) => ({ type: 'text', text: String(text) })),
    structuredContent: { ...answer },
    ...(isError && { isError }),
  };
}

function describeQuestions(questions: readonly OpenInterrupt[], url: string): string {
  const wanted = questions.some(({ isApproval }) => isApproval)
    ? "The oracle needs the user's approval of a call"
    : "The oracle needs the user's answer to a question";
  return `${wanted}. The user gives it at ${url}. The call waits until then; read_answer returns what follows.`;
}

/** Sends what happens as progress, if the client wants it. */
function createReporter({ _meta, notify }: Reading['request']) {
  return async (part: NumberedPart): Promise<void> => {
    const message = describeProgress(part);
    const progressToken = _meta?.progressToken;
    if (message === undefined || progressToken === undefined) return;
    const params = { progressToken, progress: part.seq, message };
    // The client may be gone; its turn continues.
    await notify({ method: 'notifications/progress', params }).catch(() => undefined);
  };
}

function describeProgress(part: NumberedPart): string | undefined {
  if (part.seq === 1) return 'The oracle has begun';
  if (part.event === 'message') return part.data.content;
  if (part.event !== 'tool_call' || part.data.status !== 'isRunning') return undefined;
  return `The oracle uses ${part.data.toolName}`;
}
