import { setImmediate as yieldToOthers } from 'node:timers/promises';
import type { SubAgent, Tool, TurnContext } from '@sibyl/plugin-kit';
import {
  checkSubAgent,
  checkTool,
  type LoadedPlugin,
  runTool,
  type Visibility,
} from '@sibyl/plugin-kit/host';
import type { ClientTool } from '@sibyl/plugin-kit/surface';
import { z } from 'zod';
import type { AgentPart, AgentRequest, AgentTool } from '../agent/agent.js';
import { composeNote, composeSubAgentPrompt } from '../agent/prompt.js';
import { runAgent } from '../agent/run-agent.js';
import { PausedError } from '../agent/steps.js';
import { type ToolDefinition, toAgentTool } from '../agent/tool-schema.js';
import type { Models } from '../models/models.js';
import { RESERVED_TOOLS, type TurnTool } from './capabilities.js';
import { type Hooks, isPromise, withSignal } from './hooks.js';
import type { MiddlewareChain } from './middlewares.js';
import { createInterrupt } from './tool-interrupt.js';
import { findApproved, type ToolPolicy } from './tool-policy.js';
import type { ToolReach, TurnReach } from './tool-reach.js';
import type { TurnContexts } from './turn-context.js';
import type { SurfaceExtras } from './turn-request.js';

/** Limit for the schemas of all tools of a turn: every model call sends them. */
const MAX_CHARACTERS = 1024 * 1024;
/** Time for reading schemas before other requests run. */
const SLICE_MS = 5;

export interface ToolTurn extends SubAgentTurn {
  readonly plugins: readonly LoadedPlugin[];
  readonly contexts: TurnContexts;
  readonly policy: ToolPolicy;
  readonly reach: TurnReach;
  readonly warn: TurnContext['warn'];
  /** The client tools belong to this plugin. */
  readonly surface: SurfaceExtras | undefined;
  readonly signal: AbortSignal;
}

/** The tools of one plugin, for every turn or for this one. */
interface Contribution {
  readonly plugin: LoadedPlugin;
  readonly tools: readonly Tool[];
  /** Those that the program that sent the message runs. */
  readonly clientTools?: readonly Tool[];
  readonly subAgents: readonly SubAgent[];
}

/**
 * All tools that the agent can use in a turn. If two have the same name, the first one wins: tools of every turn
 * come before those of this turn, then the order of the plugins decides.
 */
export async function gatherTools(turn: ToolTurn): Promise<readonly TurnTool[]> {
  const { plugins, surface } = turn;
  const ofThisTurn = await Promise.all(
    plugins
      .filter(({ plugin: { getRequestTools, getRequestSubAgents }, name }) =>
        Boolean(getRequestTools || getRequestSubAgents || surface?.plugin === name),
      )
      .map((plugin) => getRequestContribution(plugin, turn)),
  );
  const byName = new Map<string, TurnTool>();
  let characters = 0;
  let sliceEnd = performance.now() + SLICE_MS;
  for (const found of bindTools([...plugins.map(toContribution), ...ofThisTurn], turn)) {
    if (found && admitTool(found, { byName, characters }, turn)) {
      byName.set(found.tool.name, found);
      characters += found.characters;
    }
    if (performance.now() < sliceEnd) continue;
    await yieldToOthers();
    turn.signal.throwIfAborted();
    sliceEnd = performance.now() + SLICE_MS;
  }
  return [...byName.values()];
}

/** Warns of a tool whose name is taken, or that does not fit. */
function admitTool(
  found: TurnTool,
  { byName, characters }: { byName: ReadonlyMap<string, TurnTool>; characters: number },
  turn: ToolTurn,
): boolean {
  const { name } = found.tool;
  const first = RESERVED_TOOLS.has(name) ? 'the host' : byName.get(name)?.plugin.name;
  if (first) reportCollision(found, first, turn);
  else if (characters + found.characters > MAX_CHARACTERS) turn.warn('tool_left_out', full(name));
  else return true;
  return false;
}

const full = (name: string) =>
  `The tool ${name} is left out: the schemas of a turn may hold at most ${MAX_CHARACTERS} characters.`;

function toContribution(plugin: LoadedPlugin): Contribution {
  const { tools, subAgents } = plugin;
  return { plugin, tools, subAgents };
}

async function getRequestContribution(plugin: LoadedPlugin, turn: ToolTurn): Promise<Contribution> {
  const { getRequestTools, getRequestSubAgents } = plugin.plugin;
  const [tools, subAgents] = await Promise.all([
    getRequestTools ? callRequestHook({ plugin, hook: 'getRequestTools', turn }, readTools) : [],
    getRequestSubAgents
      ? callRequestHook({ plugin, hook: 'getRequestSubAgents', turn }, readSubAgents)
      : [],
  ]);
  const { plugin: surface, clientTools = [] } = turn.surface ?? {};
  const declared = surface === plugin.name ? clientTools.map(toClientTool) : [];
  return { plugin, tools, clientTools: declared, subAgents };
}

/** What the model learns about the client tools, and has to call, by the choice of the client. */
export function applyToolChoice(
  tools: readonly TurnTool[],
  { plugin: surface, clientTools = [], toolChoice }: Partial<SurfaceExtras> = {},
): Pick<AgentRequest, 'hiddenTools' | 'toolChoice'> {
  const declared = new Set(clientTools.map(({ name }) => name));
  // Without those that were left out, such as one that has the name of a tool of another plugin.
  const own = tools.filter(
    ({ plugin, tool }) => plugin.name === surface && declared.has(tool.name),
  );
  const names = new Set(own.map(({ tool }) => tool.name));
  if (toolChoice === 'none') return { hiddenTools: names };
  const isPossible = typeof toolChoice === 'object' ? names.has(toolChoice.tool) : names.size > 0;
  return isPossible ? { toolChoice } : {};
}

/** The client runs the tool: the turn pauses until it has sent the result. */
const toClientTool = ({ name, description, schema }: ClientTool): Tool => ({
  name,
  description: description || name,
  inputSchema: schema,
  visibility: 'always',
  run: (args, { interrupt, toolCallId }) =>
    interrupt({ kind: 'tool_call', schema: {}, data: { toolCallId, toolName: name, args } }),
});

interface RequestHook {
  readonly plugin: LoadedPlugin;
  readonly hook: 'getRequestTools' | 'getRequestSubAgents';
  readonly turn: ToolTurn;
}

/** If a plugin fails, the user gets a warning and the prompt lists it as degraded. */
async function callRequestHook<T>(
  { plugin, hook, turn }: RequestHook,
  check: (items: readonly unknown[]) => CheckedItems<T>,
): Promise<readonly T[]> {
  const { plugin: hooked, name, manifest } = plugin;
  const { hooks, contexts, warn, signal } = turn;
  const call = { plugin: name, hook, signal };
  const read = (items: unknown) => {
    if (Array.isArray(items)) return check(items);
    throw new TypeError('returned no array');
  };
  const answer = await hooks.callOptional(call, (limit) => {
    const items = hooked[hook]?.(contexts.forHook(plugin, limit));
    return isPromise<unknown>(items) ? items.then(read) : read(items);
  });
  if ('fault' in answer) {
    warn('plugin_failed', `${manifest.title} is not fully available in this turn.`);
    contexts
      .of(plugin)
      .degrade(manifest.title, 'it failed to set up; some of its tools are missing');
    return [];
  }
  for (const fault of answer.ok.faults) {
    hooks.logFailure(call, new TypeError(fault));
    warn('tool_left_out', fault);
  }
  return answer.ok.usable;
}

/** Reads the schema of one tool after the other and binds it to the turn; undefined for one that is left out. */
function* bindTools(
  contributions: readonly Contribution[],
  turn: ToolTurn,
): Generator<TurnTool | undefined> {
  for (const { plugin, tools, clientTools = [], subAgents } of contributions) {
    const bindOwn = (definition: PluginTool, own: Visibility | undefined) => {
      const bound = bind({ agent: 'main', plugin }, definition, turn);
      return bound && { plugin, visibility: own ?? plugin.manifest.visibility, ...bound };
    };
    for (const tool of tools) yield bindOwn(toToolDefinition(tool, plugin, turn), tool.visibility);
    for (const tool of clientTools)
      yield bindOwn({ ...toToolDefinition(tool, plugin, turn), reach: 'client' }, tool.visibility);
    for (const agent of subAgents)
      yield bindOwn(toAgentDefinition(agent, plugin, turn), agent.visibility);
  }
}

/** Leaves a tool that the user blocks or the turn may not use out of it, and one with an unusable schema with a warning. */
function bind(
  { agent, plugin }: { readonly agent: string; readonly plugin: LoadedPlugin },
  definition: PluginTool,
  turn: ToolTurn,
): Pick<TurnTool, 'tool' | 'characters'> | undefined {
  const { name, needsApproval, delegates, reach } = definition;
  if (!turn.reach.permitsTool(name, reach)) return undefined;
  const facts = { tool: name, plugin: plugin.name, needsApproval, delegates };
  if (turn.policy.isBlocked(facts)) return undefined;
  const bound = toAgentTool(definition);
  if (!bound.ok) {
    turn.warn('tool_left_out', `The tool ${name} cannot be used: ${bound.error}`);
    return undefined;
  }
  const getContext = () => turn.contexts.of(plugin);
  const tool = turn.policy.guard(bound.ok.tool, { ...facts, getContext }, (guarded) =>
    turn.chain.aroundTool(agent, guarded),
  );
  return { ...bound.ok, tool };
}

/** A tool that a plugin contributes. */
type PluginTool = ToolDefinition & {
  readonly needsApproval?: Tool['needsApproval'] | undefined;
  readonly delegates?: Tool['delegates'];
  readonly reach?: ToolReach | undefined;
};

function toToolDefinition(
  tool: Tool,
  plugin: LoadedPlugin,
  { contexts, policy }: ToolTurn,
): PluginTool {
  const { name, description, inputSchema, timeoutMs, event, needsApproval, delegates, reach } =
    tool;
  return {
    needsApproval,
    delegates,
    reach,
    name,
    description,
    inputSchema,
    timeoutMs,
    event,
    run: async (input, call) => {
      const { id, signal } = call;
      const interrupt = createInterrupt(call);
      const ucan = policy.restrictUcan(plugin.name, call);
      const delegation = findApproved(call);
      const context = {
        ...contexts.of(plugin),
        ...{ ucan, toolCallId: id, signal, interrupt, delegation },
      };
      const shown = { toolName: name, args: input, status: 'isRunning' as const };
      return runTool(tool, input, context, (output) =>
        event === 'action_call'
          ? context.emit.actionCall({ ...shown, toolCallId: id, output })
          : context.emit.toolCall({ ...shown, eventId: id, output }),
      );
    },
  };
}

function toAgentDefinition(agent: SubAgent, plugin: LoadedPlugin, turn: ToolTurn): PluginTool {
  const context = turn.contexts.of(plugin);
  const tools = (agent.tools ?? []).flatMap(
    (tool) =>
      bind({ agent: agent.name, plugin }, toToolDefinition(tool, plugin, turn), turn)?.tool ?? [],
  );
  const tool = createSubAgentTool({ agent, plugin: plugin.name, context, tools }, turn);
  return { ...tool, reach: agent.reach };
}

function reportCollision({ plugin, tool }: TurnTool, first: string, turn: ToolTurn): void {
  const why = `${first} has a tool of that name`;
  turn.hooks.logFailure(
    { plugin: plugin.name, hook: 'getRequestTools' },
    new Error(`left out ${tool.name}: ${why}`),
  );
  turn.warn('tool_left_out', `The tool ${tool.name} of ${plugin.name} is left out: ${why}.`);
}

/** The valid items that a hook returned, and the errors of the others. */
interface CheckedItems<T> {
  readonly usable: readonly T[];
  readonly faults: readonly string[];
}

const readTools = (items: readonly unknown[]) => checkItems<Tool>(items, checkTool);

const readSubAgents = (items: readonly unknown[]) => checkItems<SubAgent>(items, checkSubAgent);

function checkItems<T>(
  items: readonly unknown[],
  findError: (item: unknown) => string | undefined,
): CheckedItems<T> {
  const usable: T[] = [];
  const faults: string[] = [];
  for (const item of items) {
    const fault = findError(item);
    if (fault === undefined) usable.push(item as T);
    else faults.push(`${describeItem(item)} cannot be used: ${fault}`);
  }
  return { usable, faults };
}

function describeItem(item: unknown): string {
  const name = (item as { name?: unknown } | null | undefined)?.name;
  return typeof name === 'string' && name ? `The tool ${name.slice(0, 100)}` : 'A tool';
}

/** Long enough for many steps, each with its own limits. */
const TIMEOUT_MS = 10 * 60_000;

const Task = z.object({
  task: z
    .string()
    .min(1)
    .max(20_000)
    .describe('Everything the agent needs to know; it does not see the conversation'),
});

/** What sub-agents share with the agent that calls them. */
interface SubAgentTurn
  extends Pick<AgentRequest, 'smallModel' | 'summaries' | 'limits' | 'meter' | 'onToolEnd'> {
  readonly models: Pick<Models, 'get'>;
  readonly chain: MiddlewareChain;
  readonly hooks: Hooks;
}

interface SubAgentDeps {
  readonly agent: SubAgent;
  readonly plugin: string;
  readonly context: TurnContext;
  readonly tools: readonly AgentTool[];
}

/** Creates the tool with which the main agent calls a sub-agent. */
function createSubAgentTool(parts: SubAgentDeps, turn: SubAgentTurn): ToolDefinition {
  const { agent, context } = parts;
  const { name } = agent;
  return {
    name: `call_${name}_agent`,
    description: agent.description,
    inputSchema: Task,
    timeoutMs: TIMEOUT_MS,
    isAgent: true,
    run: async (input, call) => {
      const { id, signal, nested } = call;
      context.emit.router({ from: 'main', to: name, step: 'call' });
      try {
        const { task } = Task.parse(input);
        const asked = { ...parts, context: { ...context, toolCallId: id, signal } };
        const request = await buildAgentRequest(asked, turn, task);
        return await readLastText(runAgent({ ...request, ...nested }));
      } catch (error) {
        if (error instanceof PausedError) call.pause(error);
        throw error;
      } finally {
        context.emit.router({ from: name, to: 'main', step: 'return' });
      }
    },
  };
}

async function buildAgentRequest(
  { agent, plugin, context, tools }: SubAgentDeps,
  turn: SubAgentTurn,
  task: string,
): Promise<AgentRequest> {
  const { models, chain, hooks, smallModel, summaries, limits, meter, onToolEnd } = turn;
  const { signal } = context;
  const { timezone } = context.user;
  const model = models.get(agent.model ?? 'subagent');
  const call = { plugin, hook: `prompt of ${agent.name}`, signal };
  const prompt = await hooks.callOptional(call, (limit) =>
    typeof agent.prompt === 'string' ? agent.prompt : agent.prompt(withSignal(context, limit)),
  );
  if (!('ok' in prompt) || typeof prompt.ok !== 'string')
    throw new Error('This agent cannot be used in this turn: it could not be set up.');
  return {
    model,
    smallModel,
    summaries,
    limits,
    meter,
    onToolEnd,
    system: composeSubAgentPrompt(prompt.ok),
    messages: [
      { role: 'user', content: task, note: composeNote({ sentAt: Date.now(), timezone }) },
    ],
    tools: () => tools,
    hooks: chain.aroundModel({ agent: agent.name, model }),
    signal,
  };
}

/** The text after the last tool call; earlier text is reasoning. */
async function readLastText(parts: AsyncIterable<AgentPart>): Promise<string> {
  let text = '';
  for await (const part of parts) {
    if (part.type === 'text') text += part.text;
    if (part.type === 'tool-start') text = '';
  }
  if (text.trim()) return text.trim();
  throw new Error('The agent ended without an answer.');
}
