import { randomUUID } from 'node:crypto';
import type { JsonObject, ReplyPart } from '@sibyl/protocol';
import type { ModelRequest, ModelResponse } from '../middleware.js';
import type { LoadedPlugin } from '../rules/set-up-plugin.js';
import type { SubAgent } from '../sub-agent.js';
import type { Tool } from '../tool.js';
import type { TurnContext } from '../turn-context.js';
import { type TurnNotes, turnContextOf } from './test-turn-context.js';
import type { TestWorld } from './test-world.js';
import { checkInput } from './tool-input.js';
import type { TurnParts } from './turn-parts.js';

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
