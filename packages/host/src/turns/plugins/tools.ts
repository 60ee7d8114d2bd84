import { setImmediate as yieldToOthers } from 'node:timers/promises';
import type { SubAgent, Tool, TurnContext } from '@sibyl/plugin-kit';
import { checkSubAgent, checkTool, type LoadedPlugin, runTool } from '@sibyl/plugin-kit/host';
import type { ClientTool } from '@sibyl/plugin-kit/surface';
import { z } from 'zod';
import type { AgentPart, AgentRequest, AgentTool } from '../../agent/agent.js';
import { composeNote, composeSubAgentPrompt } from '../../agent/prompt.js';
import { runAgent } from '../../agent/run-agent.js';
import { PausedError } from '../../agent/steps.js';
import { type ToolDefinition, toAgentTool } from '../../agent/tool-schema.js';
import type { Models } from '../../models/models.js';
import type { SurfaceExtras } from '../turn-request.js';
import { RESERVED_TOOLS, type TurnTool } from './capabilities.js';
import { type Hooks, isPromise, withSignal } from './hooks.js';
import type { MiddlewareChain } from './middlewares.js';
import { createInterrupt } from './tool-interrupt.js';
import { findApproved, type ToolPolicy, type ToolReach, type TurnReach } from './tool-policy.js';
import type { TurnContexts } from './turn-context.js';

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
  const ofEveryTurn: Contribution[] = [];
  const asked: Promise<Contribution>[] = [];
  for (const plugin of turn.plugins) {
    const { name, tools, subAgents } = plugin;
    const { getRequestTools, getRequestSubAgents } = plugin.plugin;
    ofEveryTurn.push({ plugin, tools, subAgents });
    const isAsked = (getRequestTools || getRequestSubAgents) && turn.contexts.concerned.has(plugin);
    if (isAsked || turn.surface?.plugin === name) asked.push(getRequestContribution(plugin, turn));
  }
  const ofThisTurn = await Promise.all(asked);
  const byName = new Map<string, TurnTool>();
  let characters = 0;
  let sliceEnd = performance.now() + SLICE_MS;
  for (const found of bindTools([...ofEveryTurn, ...ofThisTurn], turn)) {
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

async function getRequestContribution(plugin: LoadedPlugin, turn: ToolTurn): Promise<Contribution> {
  const { getRequestTools, getRequestSubAgents } = plugin.plugin;
  const isConcerned = turn.contexts.concerned.has(plugin);
  const [tools, subAgents] = await Promise.all([
    getRequestTools && isConcerned
      ? callRequestHook<Tool>({ plugin, hook: 'getRequestTools', turn }, checkTool)
      : [],
    getRequestSubAgents && isConcerned
      ? callRequestHook<SubAgent>({ plugin, hook: 'getRequestSubAgents', turn }, checkSubAgent)
      : [],
  ]);
  const { plugin: surface, clientTools = [] } = turn.surface ?? {};
  const declared = surface === plugin.name ? clientTools.map(toClientTool) : [];
  return { plugin, tools, clientTools: declared, subAgents };
}

/** What the model learns about the client tools, and has to call, by the choice of the client. */
export function applyToolChoice(
  tools: readonly TurnTool[],
  extras: SurfaceExtras | undefined,
): Pick<AgentRequest, 'hiddenTools' | 'toolChoice'> {
  if (!extras) return {};
  const { plugin: surface, clientTools = [], toolChoice } = extras;
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
  findError: (item: unknown) => string | undefined,
): Promise<readonly T[]> {
  const { plugin: hooked, name, manifest } = plugin;
  const { hooks, contexts, warn, signal } = turn;
  const call = { plugin: name, hook, signal };
  const answer = await hooks.callOptional(call, (limit) => {
    const items = hooked[hook]?.(contexts.forHook(plugin, limit));
    return isPromise<unknown>(items)
      ? items.then((all) => checkItems<T>(all, findError))
      : checkItems<T>(items, findError);
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
    const main = { agent: 'main', plugin };
    for (const tool of tools) yield bind(main, toToolDefinition(tool, plugin, turn), turn);
    for (const tool of clientTools)
      yield bind(main, { ...toToolDefinition(tool, plugin, turn), reach: 'client' }, turn);
    for (const agent of subAgents) yield bind(main, toAgentDefinition(agent, plugin, turn), turn);
  }
}

/** Leaves a tool that the user blocks or the turn may not use out of it, and one with an unusable schema with a warning. */
function bind(
  { agent, plugin }: { readonly agent: string; readonly plugin: LoadedPlugin },
  definition: PluginTool,
  turn: ToolTurn,
): TurnTool | undefined {
  const { name, needsApproval, delegates, reach } = definition;
  const { policy, chain, contexts } = turn;
  if (!turn.reach.permitsTool(name, reach)) return undefined;
  const facts = { tool: name, plugin: plugin.name, needsApproval, delegates };
  if (policy.isBlocked(facts)) return undefined;
  const bound = toAgentTool(definition);
  if (!bound.ok) {
    turn.warn('tool_left_out', `The tool ${name} cannot be used: ${bound.error}`);
    return undefined;
  }
  const { tool, characters } = bound.ok;
  // Guarded when it is called: most tools of a turn are not.
  let guarded: AgentTool | undefined;
  const run: AgentTool['run'] = async (input, call) => {
    guarded ??= policy.guard(tool, { ...facts, getContext: () => contexts.of(plugin) }, (inner) =>
      chain.aroundTool(agent, inner),
    );
    return guarded.run(input, call);
  };
  const visibility = definition.visibility ?? plugin.manifest.visibility;
  return { plugin, visibility, characters, tool: { ...tool, run } };
}

/** A tool that a plugin contributes. */
type PluginTool = ToolDefinition &
  Partial<Pick<Tool, 'needsApproval' | 'delegates' | 'visibility'>> & {
    readonly reach?: ToolReach | undefined;
  };

const toToolDefinition = (
  tool: Tool,
  plugin: LoadedPlugin,
  { contexts, policy }: ToolTurn,
): PluginTool => ({
  ...tool,
  run: async (input, call) => {
    const { id, signal } = call;
    const interrupt = createInterrupt(call);
    const ucan = policy.restrictUcan(plugin.name, call);
    const delegation = findApproved(call);
    const context = {
      ...contexts.of(plugin),
      ...{ ucan, toolCallId: id, signal, interrupt, delegation },
    };
    const shown = { toolName: tool.name, args: input, status: 'isRunning' as const };
    return runTool(tool, input, context, (output) =>
      tool.event === 'action_call'
        ? context.emit.actionCall({ ...shown, toolCallId: id, output })
        : context.emit.toolCall({ ...shown, eventId: id, output }),
    );
  },
});

function toAgentDefinition(agent: SubAgent, plugin: LoadedPlugin, turn: ToolTurn): PluginTool {
  const context = turn.contexts.of(plugin);
  const tools = (agent.tools ?? []).flatMap(
    (tool) =>
      bind({ agent: agent.name, plugin }, toToolDefinition(tool, plugin, turn), turn)?.tool ?? [],
  );
  const tool = createSubAgentTool({ agent, plugin: plugin.name, context, tools }, turn);
  const { reach, visibility } = agent;
  return { ...tool, reach, ...(visibility && { visibility }) };
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

function checkItems<T>(
  items: unknown,
  findError: (item: unknown) => string | undefined,
): CheckedItems<T> {
  if (!Array.isArray(items)) throw new TypeError('returned no array');
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
