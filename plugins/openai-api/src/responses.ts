import type { Caller } from '@sibyl/plugin-kit';
import {
  type CallerTurns,
  listAnswerRuns,
  RouteReply,
  type Surface,
  type SurfaceRun,
} from '@sibyl/plugin-kit/surface';
import { OracleError } from '@sibyl/protocol';
import { assertCalls, type Conversation, invalid, readInputItems } from './conversation.js';
import { Said } from './output-items.js';
import {
  findItem,
  streamResponse,
  toResponse,
  toResponseId,
  toRunId,
  toSse,
} from './response-events.js';
import type { InputItem, OpenAiObject, ResponseRequest } from './schemas.js';
import type { ResponseFacts, ResponseStore, StoredResponse } from './stored-responses.js';
import {
  chooseTools,
  continueTurn,
  DEFAULT_MODEL,
  findModel,
  findUser,
  type GivenChoice,
  type RunEnd,
  readOnce,
  readRun,
  startTurn,
  type TurnChoices,
  UNLISTED,
} from './turn.js';

interface ResponsesDeps {
  readonly surface: Surface;
  readonly pageUrl: string;
  readonly store: ResponseStore;
}

interface ResponseCall {
  readonly caller: Caller;
  readonly signal: AbortSignal;
}

interface CreateCall extends ResponseCall {
  readonly body: ResponseRequest;
  readonly idempotencyKey: string | undefined;
}

/** A response and its run. */
interface OpenResponse {
  readonly turns: CallerTurns;
  readonly run: SurfaceRun;
  readonly stored: StoredResponse;
}

type Events = ReturnType<typeof readRun>;

/** OpenAI's responses: each is a run, and a chain of them a session. */
export class Responses {
  constructor(private readonly deps: ResponsesDeps) {}

  async create(call: CreateCall): Promise<OpenAiObject | RouteReply> {
    const { body, caller, signal } = call;
    const model = findModel(this.deps.surface, body.model ?? DEFAULT_MODEL);
    const turns = this.deps.surface.for(caller, signal, findUser(body));
    const previous = await this.findPrevious(caller, body);
    const conversation = readInputItems(await resolveReferences(turns, body.input, signal));
    const instructions = [body.instructions ?? '', conversation.instructions].filter(Boolean);
    const given = { ...conversation, instructions: instructions.join('\n\n') };
    const facts = readFacts(body, model);
    const { run, isUnlisted } = await this.start(turns, given, { call, previous, model });
    const { runId: id, sessionId } = run;
    const stored = { owner: caller.did, id, sessionId, isUnlisted, facts };
    const open = { turns, run, stored };
    if (!facts.isStored) return this.answerOnce(open, call);
    await this.deps.store.add(stored);
    if (body.stream) return this.stream(open, this.read(open, signal), -1);
    if (facts.isBackground) return toResponse(run, facts);
    return this.collect(open, this.read(open, signal));
  }

  async retrieve(
    { caller, signal }: ResponseCall,
    id: string,
    query: { readonly stream?: string | undefined; readonly starting_after?: number | undefined },
  ): Promise<OpenAiObject | RouteReply> {
    const open = await this.open(caller, id);
    if (query.stream === 'true')
      return this.stream(open, this.read(open, signal), query.starting_after ?? -1);
    const status = (await listAnswerRuns(open.turns, open.run)).at(-1)?.status;
    if (status === 'queued' || status === 'running') return toResponse(open.run, open.stored.facts);
    return this.collect(open, this.read(open, signal));
  }

  async cancel({ caller, signal }: ResponseCall, id: string): Promise<OpenAiObject | RouteReply> {
    const open = await this.open(caller, id);
    await open.turns.cancel(open.run.runId);
    return this.collect(open, this.read(open, signal));
  }

  async delete({ caller }: ResponseCall, id: string): Promise<OpenAiObject | RouteReply> {
    const open = await this.open(caller, id);
    await open.turns.cancel(open.run.runId);
    await this.forget(open);
    return { id, object: 'response', deleted: true };
  }

  /** With `store: false`, nothing can read the response later. */
  private answerOnce(open: OpenResponse, { body, signal }: CreateCall) {
    const events = readOnce(open, this.read(open, signal), () => this.forget(open));
    return body.stream ? this.stream(open, events, -1) : this.collect(open, events);
  }

  private async forget({ turns, run, stored }: OpenResponse): Promise<void> {
    const isLast = await this.deps.store.delete(stored);
    if (isLast && stored.isUnlisted) await turns.deleteUnlisted(run.sessionId);
  }

  private async start(
    turns: CallerTurns,
    conversation: Conversation,
    { call, previous, model }: StartOptions,
  ): Promise<{ readonly run: SurfaceRun; readonly isUnlisted: boolean }> {
    const { body, idempotencyKey } = call;
    const known = previous?.sessionId ?? body.metadata?.session_id ?? turns.onlySession;
    const isUnlisted = previous?.isUnlisted ?? (known === undefined && body.store !== true);
    const choices = readChoices(body, model, known === undefined ? undefined : idempotencyKey);
    const { toolChoice } = choices;
    const continued = await continueTurn({ ...this.deps, turns }, conversation, toolChoice);
    if (continued) return { run: continued, isUnlisted };
    const own = known === undefined ? conversation : { ...conversation, history: [] };
    assertCalls(own);
    const sessionId = known ?? (await turns.openSession(isUnlisted ? UNLISTED : {})).sessionId;
    // A response can have several next ones.
    const answered = previous && (await turns.findRun(previous.id));
    const after = answered?.messageId;
    const run = await startTurn(turns, sessionId, own, { ...choices, after });
    return { run, isUnlisted };
  }

  private read({ turns, run }: OpenResponse, signal: AbortSignal): Events {
    return readRun({ turns, run, pageUrl: this.deps.pageUrl, signal });
  }

  private stream({ run, stored }: OpenResponse, events: Events, after: number) {
    const stream = toSse(streamResponse(run, stored.facts, events), after);
    return RouteReply.events(stream);
  }

  private async collect({ run, stored }: OpenResponse, events: Events) {
    const said = new Said();
    let end: RunEnd | undefined;
    for await (const event of events) {
      if (event.type === 'end') end = event.end;
      else if ('text' in event) said.add(event);
    }
    if (end) said.correct(end.text);
    return toResponse(run, stored.facts, { said, end });
  }

  private async findPrevious(
    { did: owner }: Caller,
    { previous_response_id: id }: ResponseRequest,
  ): Promise<StoredResponse | undefined> {
    if (!id) return undefined;
    return (await this.deps.store.find({ owner, id: toRunId(id) })) ?? notFound(id);
  }

  private async open(caller: Caller, id: string): Promise<OpenResponse> {
    const turns = this.deps.surface.for(caller);
    const stored = await this.deps.store.find({ owner: caller.did, id: toRunId(id) });
    const run = stored && (await turns.findRun(stored.id));
    return stored && run ? { turns, run, stored } : notFound(id);
  }
}

interface StartOptions {
  readonly call: CreateCall;
  readonly previous: StoredResponse | undefined;
  readonly model: string;
}

/** Characters of the items that a request refers to, together. */
const MAX_REFERENCED = 4_000_000;

/** Items that are read at the same time; more would keep the connections to the database from other users. */
const ITEMS_AT_ONCE = 4;

/** Clients may send the id of an item of an earlier response instead of the item. */
async function resolveReferences(
  turns: CallerTurns,
  input: ResponseRequest['input'],
  signal: AbortSignal,
): Promise<ResponseRequest['input']> {
  if (typeof input === 'string') return input;
  const references = input.flatMap(({ type, id }) => (type === 'item_reference' ? [id ?? ''] : []));
  const found = new Map<string, InputItem>();
  let characters = 0;
  for (let from = 0; from < references.length; from += ITEMS_AT_ONCE) {
    signal.throwIfAborted();
    const ids = references.slice(from, from + ITEMS_AT_ONCE);
    const missing = [...new Set(ids)].filter((id) => !found.has(id));
    const items = await Promise.all(missing.map((id) => requireItem(turns, id)));
    for (const [i, item] of items.entries()) found.set(missing[i] ?? '', item);
    // Also those that are named again: a short list of references can stand for gigabytes.
    for (const id of ids) characters += JSON.stringify(found.get(id)).length;
    if (characters > MAX_REFERENCED) throw invalid('The items that are referred to are too long');
  }
  return input.map((given) =>
    given.type === 'item_reference' ? (found.get(given.id ?? '') ?? given) : given,
  );
}

async function requireItem(turns: CallerTurns, id: string): Promise<InputItem> {
  const item = await findItem(turns, id);
  if (item) return item;
  throw new OracleError('not_found', { message: `Item with id '${id}' not found.` });
}

function notFound(id: string): never {
  throw new OracleError('not_found', { message: `Response with id '${id}' not found.` });
}

function readFacts(body: ResponseRequest, model: string): ResponseFacts {
  const { instructions, previous_response_id, tools, tool_choice, metadata } = body;
  const { background, store } = body;
  if (background && store === false)
    throw invalid('background needs a response that is stored: leave store out');
  const previousId = previous_response_id ? toResponseId(toRunId(previous_response_id)) : null;
  return {
    model,
    instructions: instructions ?? null,
    previousId,
    tools: tools ?? [],
    toolChoice: tool_choice,
    metadata: metadata ?? {},
    isBackground: background === true,
    isStored: store !== false,
  };
}

function readChoices(
  { tools, tool_choice, text, reasoning }: ResponseRequest,
  model: string,
  idempotencyKey: string | undefined,
): TurnChoices {
  const { type, schema } = text?.format ?? {};
  const declared = (tools ?? []).map(({ name, description, parameters }) => {
    return { name, description: description ?? '', schema: parameters ?? { type: 'object' } };
  });
  return {
    model,
    ...chooseTools(declared, readToolChoice(tool_choice)),
    responseSchema: type === 'json_object' ? { type: 'object' } : schema,
    effort: reasoning?.effort,
    idempotencyKey,
  };
}

function readToolChoice(choice: ResponseRequest['tool_choice']): GivenChoice {
  if (typeof choice !== 'object' || choice === null) return { mode: choice ?? 'auto' };
  if (choice.type === 'function') return { mode: { tool: choice.name } };
  return { mode: choice.mode, allowed: choice.tools.map(({ name }) => name) };
}
