import { randomUUID } from 'node:crypto';
import {
  type AgAction,
  type Attachment,
  type BrowserTool,
  describeIssues,
  type JsonObject,
  type Message,
  type ReplyPart,
  runFrames,
  type UserPreferences,
} from '@sibyl/protocol';
import { z } from 'zod';
import { type SharedState, sharedKey, type TurnContext, type TurnUser } from '../context.js';
import {
  createShared,
  createTurnEmit,
  type LoadedPlugin,
  meetsCondition,
} from '../host/plugin-setup.js';
import { type ModelRequest, ModelResponse, type ToolCall } from '../middleware.js';
import { isStandardSchema, type ToolInput, type ToolSchema } from '../schema.js';
import {
  definitions,
  type InterruptRequest,
  runTool,
  type SubAgent,
  type Tool,
  type ToolContext,
} from '../tool.js';
import { createTurnUcan, getOwnRoom, TEST_USER, type TestHost } from './test-host.js';

/** The message of a turn; everything has a default. */
export interface TestTurnOptions {
  /** The user's DID. */
  readonly user?: string;
  readonly sessionId?: string;
  readonly roomId?: string;
  readonly client?: string;
  readonly timezone?: string;
  readonly matrix?: NonNullable<TurnUser['matrix']>;
  readonly history?: readonly Message[];
  readonly metadata?: Readonly<Record<string, unknown>>;
  readonly preferences?: UserPreferences;
  readonly tools?: readonly BrowserTool[];
  readonly agActions?: readonly AgAction[];
  readonly attachments?: readonly Attachment[];
  readonly mcpInvocations?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  /** Answers what tools ask with `interrupt`, at once; throw an error for a question that is not answered. */
  readonly onInterrupt?: (request: InterruptRequest) => unknown;
}

interface Owned<T> {
  readonly item: T;
  readonly plugin: LoadedPlugin;
}

/** A sub-agent at the start of its task. */
export interface TestSubAgent {
  readonly prompt: string;
  readonly tools: readonly Tool[];
  callTool(name: string, input: unknown): Promise<unknown>;
}

/** What plugins reported in a turn. */
interface Reports {
  readonly events: ReplyPart[];
  readonly progress: string[];
  readonly warnings: { readonly code: string; readonly message: string }[];
  readonly degraded: { readonly name: string; readonly missing: string }[];
  readonly invalidEvents: string[];
}

/** One turn, with its steps called one by one and without a model. */
export class TestTurn {
  readonly #host: TestHost;
  readonly #plugins: readonly LoadedPlugin[];
  readonly #interrupt: ToolContext['interrupt'];
  readonly #reports: Reports = {
    events: [],
    progress: [],
    warnings: [],
    degraded: [],
    invalidEvents: [],
  };
  readonly #contexts = new Map<string, TurnContext>();
  readonly #concerned = new Set<LoadedPlugin>();
  #tools: readonly Owned<Tool>[] = [];
  #subAgents: readonly Owned<SubAgent>[] = [];

  private constructor(
    host: TestHost,
    plugins: readonly LoadedPlugin[],
    { onInterrupt }: TestTurnOptions,
  ) {
    this.#host = host;
    this.#plugins = plugins;
    this.#interrupt = createInterrupt(onInterrupt);
  }

  /** Computes what the plugins share, and collects their tools. */
  static async start(
    host: TestHost,
    plugins: readonly LoadedPlugin[],
    options: TestTurnOptions,
  ): Promise<TestTurn> {
    const turn = new TestTurn(host, plugins, options);
    await turn.#createContexts(options);
    await turn.#collectTools();
    return turn;
  }

  /** The events that plugins sent to clients, in order. */
  get events(): readonly ReplyPart[] {
    return this.#reports.events;
  }

  /** The progress that tools yielded, in order. */
  get progress(): readonly string[] {
    return this.#reports.progress;
  }

  get warnings(): Reports['warnings'] {
    return this.#reports.warnings;
  }

  /** What plugins reported as not available in this turn. */
  get degraded(): Reports['degraded'] {
    return this.#reports.degraded;
  }

  /** Events with payloads that the protocol does not allow; the host drops them. */
  get invalidEvents(): readonly string[] {
    return this.#reports.invalidEvents;
  }

  get tools(): readonly Tool[] {
    return this.#tools.map(({ item }) => item);
  }

  /** The turn as a plugin receives it. */
  getContext(plugin: string): TurnContext {
    const context = this.#contexts.get(plugin);
    if (!context) throw new Error(`There is no plugin ${plugin} in this test`);
    return context;
  }

  /** Calls a tool as the agent does: validates the input and runs every middleware. */
  callTool(name: string, input: unknown): Promise<unknown>;
  callTool<Schema extends ToolSchema, Output>(
    tool: Tool<Schema, Output>,
    input: ToolInput<Schema>,
  ): Promise<Output>;
  async callTool(tool: string | Tool, input: unknown): Promise<unknown> {
    return this.#call(
      'main',
      findNamed(this.#tools, typeof tool === 'string' ? tool : tool.name),
      input,
    );
  }

  async subAgent(name: string): Promise<TestSubAgent> {
    const { item: agent, plugin } = findNamed(this.#subAgents, name);
    const { prompt, tools = [] } = agent;
    const owned = tools.map((item) => ({ item, plugin }));
    return {
      prompt: typeof prompt === 'string' ? prompt : await prompt(this.getContext(plugin.name)),
      tools,
      callTool: (tool, input) => this.#call(name, findNamed(owned, tool), input),
    };
  }

  /** Calls a model through every middleware; returns the request as the model would receive it. */
  async callModel(
    request: Partial<ModelRequest> = {},
    response: Partial<Pick<ModelResponse, 'text' | 'toolCalls' | 'use'>> = {},
  ): Promise<ModelRequest> {
    const use = { model: 'test', input: 0, output: 0, cached: 0 };
    let received: ModelRequest | undefined;
    const callModel = async (sent: ModelRequest): Promise<ModelResponse> => {
      if (received) throw new Error('A middleware called next twice');
      received = sent;
      return new ModelResponse({ text: '', toolCalls: [], use, ...response });
    };
    const call = this.#listMiddlewares().reduceRight<typeof callModel>(
      (next, { item, plugin }) =>
        async (sent) =>
          item.wrapModel?.(sent, next, this.getContext(plugin.name)) ?? next(sent),
      callModel,
    );
    await call({
      agent: 'main',
      model: { id: 'test', vision: false },
      system: '',
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [],
      ...request,
    });
    if (!received) throw new Error('A middleware did not call next');
    return received;
  }

  async #createContexts(options: TestTurnOptions): Promise<void> {
    let values: Record<string, unknown> = {};
    for (const plugin of this.#plugins) {
      const context = this.#createContext(plugin, options, values);
      const isConcerned = !plugin.when || (await meetsCondition(plugin.when, context));
      if (isConcerned) this.#concerned.add(plugin);
      values = { ...values, ...(await computeShared(plugin, context, isConcerned)) };
    }
    for (const plugin of this.#plugins)
      this.#contexts.set(plugin.name, this.#createContext(plugin, options, values));
  }

  #createContext(
    plugin: LoadedPlugin,
    options: TestTurnOptions,
    values: Readonly<Record<string, unknown>>,
  ): TurnContext {
    const { user: owner = TEST_USER, sessionId = 'test-session' } = options;
    const { memory, llm, logger } = this.#host;
    const { page, delegated = [] } = this.#host.options;
    const { events, invalidEvents, warnings, degraded } = this.#reports;
    const requestId = randomUUID();
    const shared = createShared(values);
    return {
      ...describeTurn(options, { did: owner, sessionId, requestId }),
      state: {
        userPreferences: options.preferences ?? shared.get(PREFERENCES) ?? {},
        metadata: options.metadata ?? {},
      },
      config: plugin.config,
      services: plugin.services,
      ucan: createTurnUcan(delegated),
      sessionState: memory.sessionState(owner, sessionId, plugin.name),
      secrets: memory.secrets(owner, plugin.name),
      blobs: memory.blobs(owner, plugin.name),
      llm,
      emit: createTurnEmit({ sessionId, requestId }, (part) => {
        const { error } = runFrames[part.event].safeParse(part.data);
        if (error) invalidEvents.push(`${part.event}: ${error.message}`);
        else events.push(part);
      }),
      client: {
        call: async ({ signal: _, ...call }) => {
          if (page) return page(call);
          throw new Error('No page is connected: set the option `page`');
        },
      },
      shared,
      logger,
      warn: (code, message) => void warnings.push({ code, message }),
      degrade: (name, missing) => void degraded.push({ name, missing }),
      reach: 'user',
      permits: () => true,
      signal: options.signal ?? new AbortController().signal,
      toolCallId: '',
    };
  }

  async #collectTools(): Promise<void> {
    const tools: Owned<Tool>[] = [];
    const subAgents: Owned<SubAgent>[] = [];
    for (const plugin of this.#plugins) {
      const context = { ...this.getContext(plugin.name), ...definitions };
      const asked = this.#concerned.has(plugin) ? plugin.plugin : undefined;
      const requestTools = (await asked?.getRequestTools?.(context)) ?? [];
      const requestAgents = (await asked?.getRequestSubAgents?.(context)) ?? [];
      for (const item of [...plugin.tools, ...requestTools]) tools.push({ item, plugin });
      for (const item of [...plugin.subAgents, ...requestAgents]) subAgents.push({ item, plugin });
    }
    this.#tools = tools;
    this.#subAgents = subAgents;
  }

  async #call(agent: string, { item: tool, plugin }: Owned<Tool>, input: unknown) {
    const id = randomUUID();
    const interrupt = this.#interrupt;
    const inCall = (by: LoadedPlugin) => ({
      ...this.getContext(by.name),
      toolCallId: id,
      interrupt,
    });
    const run = (call: ToolCall) =>
      runTool(tool, call.input, inCall(plugin), (text) => void this.#reports.progress.push(text));
    const call = this.#listMiddlewares().reduceRight<typeof run>(
      (next, { item, plugin: by }) =>
        async (made) =>
          item.wrapTool ? item.wrapTool(made, next, inCall(by)) : next(made),
      run,
    );
    const checked = await validateInput(tool, input);
    const result = await call({ agent, id, name: tool.name, input: checked });
    return result === undefined ? undefined : JSON.parse(JSON.stringify(result));
  }

  #listMiddlewares() {
    return [...this.#concerned].flatMap((plugin) =>
      plugin.middlewares.map((item) => ({ item, plugin })),
    );
  }
}

async function computeShared(
  { shared }: LoadedPlugin,
  turn: TurnContext,
  isConcerned: boolean,
): Promise<SharedState> {
  const values: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(shared))
    if (typeof value !== 'function') values[key] = value;
    else if (isConcerned) values[key] = await value(turn);
  return values;
}

const PREFERENCES = sharedKey<UserPreferences>('userPreferences');

interface TurnIds {
  readonly did: string;
  readonly sessionId: string;
  readonly requestId: string;
}

function describeTurn(options: TestTurnOptions, { did, sessionId, requestId }: TurnIds) {
  const { roomId = getOwnRoom(did), client = 'api', matrix, timezone = 'UTC' } = options;
  const { tools, agActions, attachments = [], mcpInvocations = {}, history = [] } = options;
  return {
    user: { did, timezone, currentTime: new Date().toISOString(), ...(matrix && { matrix }) },
    session: { id: sessionId, requestId, roomId, client },
    history,
    request: {
      ...(tools && { tools }),
      ...(agActions && { agActions }),
      attachments,
      mcpInvocations,
    },
  };
}

/** Validates the input of a tool, as the host does before every call. */
export async function validateInput(
  { name, inputSchema }: Tool,
  input: unknown,
): Promise<JsonObject> {
  const checked = await validate(inputSchema, input, 'input');
  if ('ok' in checked) return checked.ok as JsonObject;
  throw new Error(`Invalid input for ${name}: ${checked.error}`);
}

/** The `interrupt` of a tool's context: answered at once, without a pause. */
function createInterrupt(answer: TestTurnOptions['onInterrupt']): ToolContext['interrupt'] {
  return async (request) => {
    if (!answer)
      throw new Error('A tool asked the user: set the option `onInterrupt` of runtime.turn');
    const checked = await validate(request.schema, await answer(request), 'answer');
    if ('ok' in checked) return checked.ok as never;
    throw new Error(`Invalid answer: ${checked.error}`);
  };
}

async function validate(schema: ToolSchema, value: unknown, whole: string) {
  const standard = isStandardSchema(schema) ? schema : z.fromJSONSchema(schema);
  const result = await standard['~standard'].validate(value);
  if (!result.issues) return { ok: result.value };
  return { error: describeIssues(result.issues, whole).join('; ') };
}

function findNamed<T extends { readonly name: string }>(owned: readonly Owned<T>[], name: string) {
  const found = owned.find(({ item }) => item.name === name);
  const known = owned.map(({ item }) => item.name).join(', ') || 'none';
  if (!found) throw new Error(`There is no ${name} in this turn; there are: ${known}`);
  return found;
}
