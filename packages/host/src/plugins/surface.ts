import { createHash, randomUUID } from 'node:crypto';
import type { LoadedPlugin } from '@sibyl/plugin-kit/host';
import type {
  CallerAccess,
  CallerSessions,
  CallerTurns,
  ClientMessage,
  NumberedPart,
  OpenInterrupt,
  Surface,
  SurfacePlugin,
  SurfaceRun,
  SurfaceTurn,
  ThreadTurn,
} from '@sibyl/plugin-kit/surface';
import {
  describeIssues,
  Id,
  OracleError,
  type ReplyPart,
  SendMessage,
  SubUser,
} from '@sibyl/protocol';
import type { ProvenCaller } from '../auth/caller.js';
import type { SessionChanges } from '../bus/session-changes.js';
import { FILES_ONLY, type SentFiles } from '../files/sent-files.js';
import type { Models } from '../models/models.js';
import { findSubUser, toSubUserRoom } from '../store/room-store.js';
import type { Frame } from '../store/runs/frames.js';
import { hasCrashed, type Run } from '../store/runs/run.js';
import type { Session } from '../store/session-store.js';
import type { Store } from '../store/store.js';
import { toOracleError } from '../store/store-errors.js';
import type { Approvals } from '../turns/answer/approval-decisions.js';
import type { PausedTurns } from '../turns/answer/paused-turns.js';
import type { RunReader } from '../turns/read/run-reader.js';
import { toMessageView } from '../turns/run/message-parts.js';
import { readError } from '../turns/run/run-end.js';
import type { SessionsService } from '../turns/start/sessions.js';
import { readThread, type ThreadRequest } from '../turns/start/threads.js';
import type { TurnAccess } from '../turns/start/turn-access.js';
import { readTimezone, type TurnRequest } from '../turns/turn-request.js';
import type { Turns } from '../turns/turns.js';
import { ReservedStream, type StreamSlots } from './reserved-stream.js';

/** Runs and reads turns. */
export interface TurnServices {
  readonly turns: Turns;
  readonly paused: PausedTurns;
  readonly approvals: Approvals;
  readonly reader: RunReader;
  readonly sessions: SessionsService;
  readonly slots: StreamSlots;
  readonly access: Pick<TurnAccess, 'assertKept' | 'limit'>;
  readonly changes: Pick<SessionChanges, 'assertOpen' | 'read' | 'observe'>;
  readonly files: SentFiles;
  readonly plugins: readonly LoadedPlugin[];
}

interface SurfaceDeps {
  readonly plugin: string;
  readonly store: Pick<Store, 'sessions' | 'runs' | 'messages' | 'threads' | 'turns'>;
  readonly models: Pick<Models, 'list'>;
  /** Resolves once the host is ready; earlier requests wait for it. */
  readonly ready: Promise<TurnServices>;
}

/** What a surface can do for the callers of its routes. */
export function createSurface(deps: SurfaceDeps): Surface {
  return {
    keepsAccess: (access) => keepsAccess(deps, access),
    for: (caller, signal, user) =>
      new SurfaceTurns(deps, withSubUser(requireProven(caller), user), signal),
    toError: toOracleError,
    get models() {
      const { models, default: standard } = deps.models.list();
      return models.map(({ id }) => ({ id, isDefault: id === standard }));
    },
    listPlugins: async () => (await deps.ready).plugins.flatMap(toSurfacePlugin),
  };
}

async function keepsAccess(
  { ready }: SurfaceDeps,
  { did, cids, expiration = Number.POSITIVE_INFINITY }: CallerAccess,
): Promise<boolean> {
  if (expiration * 1000 <= Date.now()) return false;
  try {
    await (await ready).access.assertKept({ did, loginCids: cids });
    return true;
  } catch (error) {
    // A failure that may pass says nothing about the access.
    if (!(error instanceof OracleError) || error.status >= 429) throw error;
    return false;
  }
}

/** Silent plugins are not listed. */
function toSurfacePlugin({ name, manifest }: LoadedPlugin): SurfacePlugin[] {
  const { title, summary, visibility, examples = [], tags = [] } = manifest;
  return visibility === 'silent' ? [] : [{ name, title, summary, examples, tags }];
}

/** Routes receive the caller that the guard has authenticated. */
function requireProven(caller: { readonly did: string }): ProvenCaller {
  if ('expiration' in caller) return caller as ProvenCaller;
  throw new TypeError('Pass the caller that the route received');
}

/** The caller of an access key for several people, on behalf of one of them; headers, which programs set themselves, come first. */
function withSubUser(caller: ProvenCaller, named: string | undefined): ProvenCaller {
  const { accessKey } = caller;
  if (accessKey?.caveats.user === undefined) return caller;
  const { data: subUser, error } = SubUser.safeParse(accessKey.subUser ?? named);
  if (error)
    throw new OracleError('validation_failed', {
      message: [
        'user: this access key is for several people; name one, with 1 to 200 characters, in `user` or the header X-Sub-User',
      ],
    });
  return { ...caller, accessKey: { ...accessKey, subUser } };
}

/** The turns of one caller, within the caveats of its access key. */
class SurfaceTurns implements CallerTurns {
  // Plugins hold this object.
  readonly #deps: SurfaceDeps;
  readonly #caller: ProvenCaller;
  readonly #signal: AbortSignal | undefined;
  readonly #stream: ReservedStream;
  readonly #opened = new Set<string>();

  constructor(deps: SurfaceDeps, caller: ProvenCaller, signal: AbortSignal | undefined) {
    this.#deps = deps;
    this.#caller = caller;
    this.#signal = signal;
    this.#stream = new ReservedStream(caller.did, signal);
  }

  get onlySession(): string | undefined {
    return this.#caller.accessKey?.caveats.session;
  }

  get #subUser(): string | undefined {
    return this.#caller.accessKey?.subUser;
  }

  /** Where new sessions are; by default in the user's own room. */
  get #room() {
    return this.#subUser === undefined ? {} : { roomId: toSubUserRoom(this.#subUser) };
  }

  accessForLater(): CallerAccess {
    const { did, login, loginCids: cids = [], expiration } = this.#caller;
    if (login) throw new OracleError('own_key_required');
    // An invocation lasts for minutes, and its caller can sign another one.
    return { did, cids, ...(cids.length > 0 && Number.isFinite(expiration) && { expiration }) };
  }

  get sessions(): CallerSessions | undefined {
    return this.#caller.accessKey ? undefined : createSessions(this.#deps, this.#caller);
  }

  async openSession({ title, isUnlisted }: { title?: string; isUnlisted?: boolean } = {}) {
    if (this.onlySession !== undefined) throw new OracleError('access_key_too_narrow');
    const { sessions } = await this.#deps.ready;
    const { sessionId } = await sessions.open({
      owner: this.#caller.did,
      ...this.#room,
      title,
      isUnlisted,
    });
    this.#opened.add(sessionId);
    return { sessionId };
  }

  async hasSession(sessionId: string): Promise<boolean> {
    if (!(await this.#permits(sessionId))) return false;
    return (await this.#deps.store.sessions.find(this.#key(sessionId))) !== undefined;
  }

  async deleteUnlisted(sessionId: string): Promise<boolean> {
    const key = this.#key(sessionId);
    if (!(await this.#permits(sessionId))) return false;
    if (!(await this.#deps.store.sessions.isUnlisted(key))) return false;
    await (await this.#deps.ready).sessions.remove(key);
    return true;
  }

  async findThread(threadId: string): Promise<string | undefined> {
    if (this.onlySession !== undefined) return this.onlySession;
    if (await this.hasSession(threadId)) return threadId;
    const { store, plugin: surface } = this.#deps;
    const thread = { surface, threadId: this.#toThreadId(threadId) };
    return store.threads.find({ owner: this.#caller.did, ...thread });
  }

  async findThreadId(sessionId: string): Promise<string | undefined> {
    if (!(await this.#permits(sessionId))) return undefined;
    const { store, plugin: surface } = this.#deps;
    const threadId = await store.threads.findId({ ...this.#key(sessionId), surface });
    return threadId?.slice(this.#toThreadId('').length);
  }

  /** Clients of different people may choose the same id. */
  #toThreadId(threadId: string): string {
    return this.#subUser === undefined ? threadId : `${hash([this.#subUser])}:${threadId}`;
  }

  async openThread(threadId: string): Promise<{ readonly sessionId: string }> {
    if (threadId.length === 0 || threadId.length > MAX_CLIENT_ID)
      throw new OracleError('bad_request', { message: TOO_LONG });
    const known = await this.findThread(threadId);
    if (known !== undefined) return { sessionId: known };
    const { sessions } = await this.#deps.ready;
    const thread = { surface: this.#deps.plugin, threadId: this.#toThreadId(threadId) };
    const { sessionId } = await sessions.open({
      owner: this.#caller.did,
      ...this.#room,
      thread,
    });
    this.#opened.add(sessionId);
    return { sessionId };
  }

  async continueThread({
    threadId,
    messages: sent,
    regenerates,
    ...turn
  }: ThreadTurn): Promise<SurfaceRun> {
    const messages = sent.map((message) => ({ ...message, text: toText(message) }));
    if (messages.some(({ id }) => id.length > MAX_CLIENT_ID))
      throw new OracleError('bad_request', { message: TOO_LONG });
    const { sessionId } = await this.openThread(threadId);
    return this.#startIn(sessionId, async () => {
      const { store } = this.#deps;
      const session = await store.sessions.get(this.#key(sessionId));
      const wanted = await readThread(store, session, { messages, regenerates });
      if (wanted.type === 'join') return toSurfaceRun(wanted.run);
      const request = this.#toThreadRequest({ ...turn, sessionId }, wanted);
      if (wanted.type === 'again') return this.#start(request);
      const added = messages.filter(({ id }) => wanted.clientIds.includes(id));
      return this.#start(await this.#withFiles(request, added));
    });
  }

  /** The request with the files that are sent with its message. */
  async #withFiles(
    request: TurnRequest,
    messages: readonly Pick<ClientMessage, 'files'>[],
  ): Promise<TurnRequest> {
    const files = messages.flatMap((message) => message.files ?? []);
    if (files.length === 0) return request;
    const { files: sentFiles } = await this.#deps.ready;
    const attachments = await sentFiles.attach(this.#sender, files);
    return { ...request, message: { ...request.message, attachments } };
  }

  get #sender() {
    return { holder: this.#caller.holder, signal: this.#signal };
  }

  async start({ after, history = [], ...turn }: SurfaceTurn): Promise<SurfaceRun> {
    const origin = after === undefined ? undefined : { parentId: after };
    return this.#startIn(turn.sessionId, async () => {
      const { surface, ...request } = this.#toTurnRequest({
        ...turn,
        message: toText({ ...turn, text: turn.message }),
      });
      const { files } = await this.#deps.ready;
      const earlier = await files.attachEarlier(this.#sender, history);
      const extras = { plugin: this.#deps.plugin, ...surface, history: earlier };
      return this.#start(await this.#withFiles({ ...request, surface: extras, origin }, [turn]));
    });
  }

  /** A turn that is refused leaves no session that was opened for it. */
  async #startIn(sessionId: string, start: () => Promise<SurfaceRun>): Promise<SurfaceRun> {
    return start().catch(async (error) => {
      const { sessions } = await this.#deps.ready;
      const key = this.#key(sessionId);
      if (this.#opened.has(sessionId)) await sessions.removeEmpty(key).catch(() => undefined);
      throw error;
    });
  }

  async #start(request: TurnRequest): Promise<SurfaceRun> {
    const { turns, reader, slots } = await this.#deps.ready;
    this.#stream.reserve(slots);
    const runId = await turns.start(request);
    return toSurfaceRun(await reader.find({ owner: this.#caller.did, runId }));
  }

  async findRun(runId: string): Promise<SurfaceRun | undefined> {
    const run = await this.#find(runId);
    return run && toSurfaceRun(run);
  }

  async listAttempts(runId: string): Promise<readonly SurfaceRun[]> {
    const run = await this.#find(runId);
    return run ? (await this.#listAttempts(run)).map(toSurfaceRun) : [];
  }

  async #listAttempts({ sessionId, turn }: Run): Promise<readonly Run[]> {
    const runs = await this.#deps.store.runs.list({ ...this.#key(sessionId), fromTurn: turn });
    return runs.filter((each) => each.turn === turn);
  }

  async currentRun(sessionId: string): Promise<SurfaceRun | undefined> {
    if (!(await this.hasSession(sessionId))) return undefined;
    const run = await this.#deps.store.runs.current(this.#key(sessionId));
    return run && toSurfaceRun(run);
  }

  async *read(
    runId: string,
    { after = 0, signal }: { readonly after?: number; readonly signal: AbortSignal },
  ) {
    const { reader, slots, access } = await this.#deps.ready;
    const run = await this.#find(runId);
    if (!run) throw new OracleError('run_not_found');
    const release = this.#stream.take(slots);
    const left = new AbortController();
    const limit = access.limit(this.#caller, AbortSignal.any([signal, left.signal]));
    try {
      for await (const frames of reader.read(run, after, limit)) yield* toParts(frames);
    } finally {
      left.abort();
      release();
    }
  }

  async *readStored(runId: string) {
    const run = await this.#find(runId);
    if (!run) throw new OracleError('run_not_found');
    const key = { owner: this.#caller.did, runId, after: 0 };
    for await (const frames of this.#deps.store.runs.framePages(key)) yield* toParts(frames);
  }

  async cancel(named: string): Promise<boolean> {
    const run = await this.#findLast(named);
    if (!run) return false;
    const { runId } = run;
    const { turns } = await this.#deps.ready;
    try {
      await turns.withdraw({ owner: this.#caller.did, runId });
      return true;
    } catch (error) {
      // Its turn has begun, or was over before.
      if (!(error instanceof OracleError) || error.status >= 500) throw error;
      return turns.abort({ ...this.#key(run.sessionId), runId });
    }
  }

  async abort(sessionId: string): Promise<boolean> {
    if (!(await this.#permits(sessionId))) return false;
    return (await this.#deps.ready).turns.abort(this.#key(sessionId));
  }

  async pending(sessionId: string) {
    if (!(await this.#permits(sessionId))) return [];
    const questions = await (await this.#deps.ready).paused.pending(this.#key(sessionId));
    return questions.map(toQuestion);
  }

  async asked(runId: string) {
    const run = await this.#findLast(runId);
    return run ? (await (await this.#deps.ready).paused.asked(run)).map(toQuestion) : [];
  }

  async deny({ id, reason }: { readonly id: string; readonly reason?: string }) {
    await this.#getInterrupt(id);
    const { approvals, slots } = await this.#deps.ready;
    this.#stream.reserve(slots);
    const { runId, pending } = await approvals.deny({ owner: this.#caller.did, id, reason });
    return { runId, ...(pending && { pending }) };
  }

  async answer({ id, ...answer }: Parameters<CallerTurns['answer']>[0]) {
    const { kind } = await this.#getInterrupt(id);
    if (kind === 'confirmation' && this.#caller.accessKey)
      throw new OracleError('access_key_too_narrow', { message: 'An access key confirms nothing' });
    const { paused, slots } = await this.#deps.ready;
    this.#stream.reserve(slots);
    return paused.answer({ owner: this.#caller.did, interruptId: id, ...answer });
  }

  async keepResult({ id, value }: { readonly id: string; readonly value: unknown }) {
    await this.#getInterrupt(id);
    const { paused } = await this.#deps.ready;
    await paused.keepResult({ owner: this.#caller.did, interruptId: id, value });
  }

  async #getInterrupt(id: string) {
    const key = { owner: this.#caller.did, interruptId: id };
    const isId = Id.safeParse(id).success;
    const interrupt = isId ? await this.#deps.store.runs.findInterrupt(key) : undefined;
    if (interrupt && (await this.#permits(interrupt.sessionId))) return interrupt;
    throw new OracleError('interrupt_not_found');
  }

  async #find(runId: string): Promise<Run | undefined> {
    if (!Id.safeParse(runId).success) return undefined;
    const { reader } = await this.#deps.ready;
    const run = await reader.find({ owner: this.#caller.did, runId }).catch((error) => {
      if (error instanceof OracleError && error.code === 'run_not_found') return undefined;
      throw error;
    });
    return run && (await this.#permits(run.sessionId)) ? run : undefined;
  }

  /** The run, or the last one that continues it after crashes. */
  async #findLast(runId: string): Promise<Run | undefined> {
    const run = await this.#find(runId);
    if (!run || !hasCrashed(run)) return run;
    const { attempt } = run;
    return (await this.#listAttempts(run)).find(
      (each) => each.attempt > attempt && !hasCrashed(each),
    );
  }

  async #permits(sessionId: string): Promise<boolean> {
    const { onlySession = sessionId } = this;
    if (sessionId !== onlySession || !Id.safeParse(sessionId).success) return false;
    if (this.#subUser === undefined) return true;
    const session = await this.#deps.store.sessions.find(this.#key(sessionId));
    return session !== undefined && findSubUser(session) === this.#subUser;
  }

  #key(sessionId: string) {
    return { owner: this.#caller.did, sessionId };
  }

  #toThreadRequest(
    turn: Omit<SurfaceTurn, 'message'>,
    wanted: Exclude<ThreadRequest, { type: 'join' }>,
  ): TurnRequest {
    if (wanted.type === 'again') {
      const { questionId } = wanted;
      // The host takes the text from the store.
      return { ...this.#toTurnRequest({ ...turn, message: '…' }), origin: { questionId } };
    }
    const { text: message, clientIds, origin, key } = wanted;
    const idempotencyKey = hash([this.#deps.plugin, turn.sessionId, message, ...key]);
    const { surface, ...request } = this.#toTurnRequest({ ...turn, message, idempotencyKey });
    return { ...request, origin, surface: { plugin: this.#deps.plugin, ...surface, clientIds } };
  }

  #toTurnRequest(turn: Omit<SurfaceTurn, 'history' | 'after'>): TurnRequest {
    const { sessionId, message, instructions, clientTools, idempotencyKey } = turn;
    const { responseSchema, reasoningEffort, multitask, toolChoice } = turn;
    const model = turn.model ?? this.#caller.accessKey?.caveats.model;
    const sent = SendMessage.safeParse({
      message,
      model,
      responseSchema,
      reasoningEffort,
      multitask,
      tools: clientTools,
    });
    if (!sent.success) {
      const message = describeIssues(sent.error.issues, 'message');
      throw new OracleError('validation_failed', { message });
    }
    const { timezone, warnings } = readTimezone(turn.timezone);
    const { tools: _, attachments: __, ...accepted } = sent.data;
    return {
      caller: this.#caller,
      sessionId,
      requestId: randomUUID(),
      message: { ...accepted, message },
      user: { timezone },
      warnings,
      client: this.#deps.plugin,
      surface: { plugin: this.#deps.plugin, instructions, clientTools, toolChoice },
      idempotencyKey,
    };
  }
}

export function toQuestion(question: OpenInterrupt): OpenInterrupt {
  const { id, runId, kind, schema, data, expiresAt, isApproval } = question;
  return { id, runId, kind, schema, data, expiresAt, isApproval };
}

function* toParts(frames: readonly Frame[]): Generator<NumberedPart> {
  for (const { seq, event, data } of frames)
    yield { ...({ event, data: JSON.parse(data) } as ReplyPart), seq };
}

const createSessions = (
  { store: { sessions, messages, turns }, ready }: SurfaceDeps,
  caller: ProvenCaller,
  owner = caller.did,
): CallerSessions => ({
  changes: (signal) => readChanges(ready, caller, signal),
  list: async (page) => {
    const { sessions: listed, total } = await sessions.list({ owner, ...page });
    return { sessions: listed.map(toSessionView), total };
  },
  messages: async ({ sessionId, ...page }) => {
    const { branch, isBranched } = await sessions.get({ owner, sessionId });
    const result = await messages.page({ owner, sessionId, branch, isBranched, ...page });
    if ('error' in result)
      throw new OracleError('validation_failed', { message: ['before: no such message'] });
    const { messages: found, ...cursors } = result.ok;
    return { messages: found.map((message) => toMessageView(message)), ...cursors };
  },
  turns: async (page) => {
    const { turns: found, total } = await turns.list({ owner, ...page });
    const next = found.length < page.limit ? undefined : found.at(-1)?.latest.runId;
    const views = found.map(({ first, latest }) => {
      return { first: toSurfaceRun(first), latest: toSurfaceRun(latest) };
    });
    return { turns: views, total, next };
  },
});

/** A client without access learns nothing more, also if it was lost on another host. */
async function* readChanges(
  ready: Promise<TurnServices>,
  caller: ProvenCaller,
  signal: AbortSignal,
): AsyncGenerator<(string | undefined)[]> {
  const { access, changes } = await ready;
  changes.assertOpen();
  await access.assertKept(caller);
  const left = new AbortController();
  const ended = access.limit(caller, AbortSignal.any([signal, left.signal]));
  const leftMs = caller.expiration * 1000 - Date.now();
  const expiry = setTimeout(() => left.abort(), Math.min(Math.max(0, leftMs), MAX_TIMER_MS));
  try {
    for await (const events of changes.read(caller.did, ended))
      yield events.map(({ sessionId }) => sessionId);
  } finally {
    clearTimeout(expiry);
    left.abort();
  }
}

/** The longest time that a timer can wait. */
const MAX_TIMER_MS = 2 ** 31 - 1;

const toSessionView = ({ sessionId, title, createdAt, lastUpdatedAt }: Session) => ({
  sessionId,
  title,
  createdAt: new Date(createdAt).toISOString(),
  lastUpdatedAt: new Date(lastUpdatedAt).toISOString(),
});

/** Ids of clients are stored. */
const MAX_CLIENT_ID = 200;
const TOO_LONG = `An id of a thread or message has 1 to ${MAX_CLIENT_ID} characters`;

const toText = ({ text, files = [] }: Pick<ClientMessage, 'text' | 'files'>): string =>
  text.trim() === '' && files.length > 0 ? FILES_ONLY : text;

const hash = (values: readonly unknown[]) =>
  createHash('sha256').update(JSON.stringify(values)).digest('base64url');

const toSurfaceRun = (run: Run): SurfaceRun => {
  const { runId, sessionId, attempt, status, createdAt, updatedAt, messageId } = run;
  return {
    ...{ runId, sessionId, attempt, status, createdAt, updatedAt, messageId },
    hasCrashed: hasCrashed(run),
    error: readError(run),
  };
};
