import { randomUUID } from 'node:crypto';
import {
  type AgAction,
  type Attachment,
  type BrowserTool,
  type JsonObject,
  type Message,
  type ReplyPart,
  runFrames,
  type UserPreferences,
} from '@sibyl/protocol';
import { z } from 'zod';
import { type TurnContext, type TurnEmit, type TurnUser, turnEmit } from '../context.js';
import type { ModelRequest, ModelResponse } from '../middleware.js';
import type { LoadedPlugin } from '../rules/plugin-setup.js';
import type { SubAgent, Tool } from '../tool.js';
import { createTurnUcan, ownRoomOf, TEST_USER, type TestWorld } from './test-host.js';

interface Owned<T> {
  readonly item: T;
  readonly plugin: LoadedPlugin;
}

/** A sub-agent as it would begin its work. */
export interface TestSubAgent {
  readonly prompt: string;
  readonly tools: readonly Tool[];
  callTool(name: string, input: unknown): Promise<unknown>;
}

/** One turn, step by step as the host would take it, without a model. */
export class TestTurn {
  readonly #world: TestWorld;
  readonly #plugins: readonly LoadedPlugin[];
  readonly #notes: TurnNotes = { events: [], warnings: [], degraded: [], faults: [] };
  readonly #contexts = new Map<LoadedPlugin, TurnContext>();
  #tools: readonly Owned<Tool>[] = [];
  #subAgents: readonly Owned<SubAgent>[] = [];

  private constructor(world: TestWorld, plugins: readonly LoadedPlugin[]) {
    this.#world = world;
    this.#plugins = plugins;
  }

  /** Asks the plugins for what they share and bring to this turn. */
  static async start(
    world: TestWorld,
    plugins: readonly LoadedPlugin[],
    parts: TurnParts,
  ): Promise<TestTurn> {
    const turn = new TestTurn(world, plugins);
    await turn.#share(parts);
    await turn.#gather();
    return turn;
  }

  /** What the plugins told the session's clients, in order. */
  get events(): readonly ReplyPart[] {
    return this.#notes.events;
  }

  get warnings(): TurnNotes['warnings'] {
    return this.#notes.warnings;
  }

  /** What the plugins said the agent cannot do. */
  get degraded(): TurnNotes['degraded'] {
    return this.#notes.degraded;
  }

  /** Events whose payloads the contract does not allow; the host would have dropped them. */
  get faults(): readonly string[] {
    return this.#notes.faults;
  }

  get tools(): readonly Tool[] {
    return this.#tools.map(({ item }) => item);
  }

  /** What a plugin sees of the turn. */
  contextOf(plugin: string): TurnContext {
    const ready = this.#plugins.find(({ name }) => name === plugin);
    const context = ready && this.#contexts.get(ready);
    if (!context) throw new Error(`There is no plugin ${plugin} in this test`);
    return context;
  }

  /** Calls a tool as the agent would: its input checked, every middleware around it. */
  async callTool(name: string, input: unknown): Promise<unknown> {
    return this.#call('main', named(this.#tools, name), input);
  }

  async subAgent(name: string): Promise<TestSubAgent> {
    const { item: agent, plugin } = named(this.#subAgents, name);
    const { prompt, tools = [] } = agent;
    const owned = tools.map((item) => ({ item, plugin }));
    return {
      prompt: typeof prompt === 'string' ? prompt : await prompt(this.#contextOf(plugin)),
      tools,
      callTool: (tool, input) => this.#call(name, named(owned, tool), input),
    };
  }

  /** What a model would be asked, once every middleware has had its say. */
  async beforeModel(request: Partial<ModelRequest> = {}): Promise<ModelRequest> {
    let current: ModelRequest = {
      agent: 'main',
      model: { id: 'test', vision: false },
      system: '',
      messages: [{ role: 'user', content: 'Hello' }],
      tools: [],
      ...request,
    };
    for (const { item, plugin } of this.#middlewares())
      current = {
        ...current,
        ...(await item.beforeModel?.(current, this.#contextOf(plugin))),
      };
    return current;
  }

  /** Tells the middlewares what a model has answered. */
  async afterModel(response: Partial<ModelResponse> = {}): Promise<void> {
    const use = { model: 'test', input: 0, output: 0, cached: 0 };
    const whole = { agent: 'main', text: '', toolCalls: [], use, ...response };
    for (const { item, plugin } of this.#middlewares())
      await item.afterModel?.(whole, this.#contextOf(plugin));
  }

  async #share(parts: TurnParts): Promise<void> {
    let shared: Record<string, unknown> = {};
    for (const plugin of this.#plugins) {
      const context = turnContextOf({ ...parts, plugin, shared }, this.#world, this.#notes);
      for (const [key, value] of Object.entries(plugin.shared))
        shared = { ...shared, [key]: typeof value === 'function' ? await value(context) : value };
    }
    for (const plugin of this.#plugins)
      this.#contexts.set(
        plugin,
        turnContextOf({ ...parts, plugin, shared }, this.#world, this.#notes),
      );
  }

  async #gather(): Promise<void> {
    const tools: Owned<Tool>[] = [];
    const subAgents: Owned<SubAgent>[] = [];
    for (const plugin of this.#plugins) {
      const context = this.#contextOf(plugin);
      const ownTools = [
        ...plugin.tools,
        ...((await plugin.plugin.getRequestTools?.(context)) ?? []),
      ];
      const ownAgents = [
        ...plugin.subAgents,
        ...((await plugin.plugin.getRequestSubAgents?.(context)) ?? []),
      ];
      tools.push(...ownTools.map((item) => ({ item, plugin })));
      subAgents.push(...ownAgents.map((item) => ({ item, plugin })));
    }
    this.#tools = tools;
    this.#subAgents = subAgents;
  }

  async #call(agent: string, { item: tool, plugin }: Owned<Tool>, input: unknown) {
    const id = randomUUID();
    const run = async (checked: JsonObject) =>
      tool.run(checked, { ...this.#contextOf(plugin), toolCallId: id });
    const wrapped = this.#middlewares().reduceRight<(checked: JsonObject) => Promise<unknown>>(
      (next, { item, plugin: by }) =>
        async (checked) => {
          const request = { agent, id, name: tool.name, input: checked };
          if (!item.wrapToolCall) return next(checked);
          return item.wrapToolCall(request, next, { ...this.#contextOf(by), toolCallId: id });
        },
      run,
    );
    const result = await wrapped(checkInput(tool, input));
    return result === undefined ? undefined : JSON.parse(JSON.stringify(result));
  }

  #middlewares() {
    return this.#plugins.flatMap((plugin) => plugin.middlewares.map((item) => ({ item, plugin })));
  }

  #contextOf(plugin: LoadedPlugin): TurnContext {
    return this.contextOf(plugin.name);
  }
}

function named<T extends { readonly name: string }>(owned: readonly Owned<T>[], name: string) {
  const found = owned.find(({ item }) => item.name === name);
  const known = owned.map(({ item }) => item.name).join(', ') || 'none';
  if (!found) throw new Error(`Nothing here is called ${name}; there are: ${known}`);
  return found;
}

/** What is told of a turn; the rest is made up. */
export interface TurnParts {
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
}

/** What the plugins said in a turn. */
export interface TurnNotes {
  readonly events: ReplyPart[];
  readonly warnings: { readonly code: string; readonly message: string }[];
  readonly degraded: { readonly name: string; readonly missing: string }[];
  readonly faults: string[];
}

interface PluginTurnParts extends TurnParts {
  readonly plugin: LoadedPlugin;
  readonly shared: Readonly<Record<string, unknown>>;
}

/** What one plugin sees of a turn. */
export function turnContextOf(
  parts: PluginTurnParts,
  world: TestWorld,
  notes: TurnNotes,
): TurnContext {
  const { plugin, user: owner = TEST_USER, sessionId = 'test-session' } = parts;
  const place = { sessionId, requestId: randomUUID() };
  return {
    ...factsOf(parts, owner, place),
    config: plugin.config,
    ucan: createTurnUcan(world.options.delegated ?? []),
    sessionState: world.keepers.sessionState(owner, sessionId, plugin.name),
    secrets: world.keepers.secrets(owner, plugin.name),
    blobs: world.keepers.blobs(owner, plugin.name),
    llm: world.llm,
    emit: emitTo(notes, place),
    client: {
      call: async ({ signal: _, ...call }) => {
        if (world.options.page) return world.options.page(call);
        throw new Error('No page is connected: give createTestRuntime a page');
      },
    },
    shared: parts.shared,
    logger: world.logger,
    warn: (code, message) => void notes.warnings.push({ code, message }),
    degrade: (name, missing) => void notes.degraded.push({ name, missing }),
    signal: parts.signal ?? new AbortController().signal,
    toolCallId: '',
  };
}

interface Place {
  readonly sessionId: string;
  readonly requestId: string;
}

function factsOf(parts: PluginTurnParts, did: string, { sessionId, requestId }: Place) {
  const { roomId = ownRoomOf(did), client = 'api', matrix, metadata = {}, shared } = parts;
  const { tools, agActions, attachments = [], mcpInvocations = {} } = parts;
  const preferences = parts.preferences ?? shared.userPreferences ?? {};
  const { timezone = 'UTC', history = [] } = parts;
  return {
    user: { did, timezone, currentTime: new Date().toISOString(), ...(matrix && { matrix }) },
    session: { id: sessionId, requestId, roomId, client },
    history,
    state: { userPreferences: preferences, metadata },
    request: {
      ...(tools && { tools }),
      ...(agActions && { agActions }),
      attachments,
      mcpInvocations,
    },
  };
}

/** Takes what the contract allows, and notes the rest. */
const emitTo = ({ events, faults }: TurnNotes, place: Place): TurnEmit =>
  turnEmit(place, (part) => {
    const { error } = runFrames[part.event].safeParse(part.data);
    if (error) faults.push(`${part.event}: ${error.message}`);
    else events.push(part);
  });

/** The input as the tool gets it, checked as the host does before every call. */
export function checkInput({ name, inputSchema }: Tool, input: unknown): JsonObject {
  const schema = inputSchema instanceof z.ZodType ? inputSchema : z.fromJSONSchema(inputSchema);
  const { data, error } = schema.safeParse(input);
  if (error) throw new Error(`The input of ${name} is refused: ${z.prettifyError(error)}`);
  return data as JsonObject;
}
