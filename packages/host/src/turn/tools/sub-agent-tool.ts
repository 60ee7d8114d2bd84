import type { SubAgent, TurnContext } from '@sibyl/plugin-kit';
import { z } from 'zod';
import type { AgentPart, AgentRequest, AgentTool } from '../../agent/agent.js';
import type { Models } from '../../agent/model/models.js';
import { composeSubAgentPrompt } from '../../agent/prompt/compose-sub-agent-prompt.js';
import { runAgent } from '../../agent/run-agent.js';
import type { ToolDefinition } from '../../agent/tools/tool-definition.js';
import type { Hooks } from '../hooks/hooks.js';
import type { MiddlewareChain } from '../middlewares/middleware-chain.js';

/** Long enough for many steps, each of which has limits of its own. */
const TIMEOUT_MS = 10 * 60_000;

const Task = z.object({
  task: z
    .string()
    .min(1)
    .max(20_000)
    .describe('All it needs to know, in full: it sees nothing of the conversation'),
});

/** What sub-agents share with the agent that calls them. */
export interface SubAgentTurn
  extends Pick<AgentRequest, 'smallModel' | 'summaries' | 'limits' | 'meter'> {
  readonly models: Pick<Models, 'get'>;
  readonly chain: MiddlewareChain;
  readonly hooks: Hooks;
}

interface SubAgentParts {
  readonly agent: SubAgent;
  readonly plugin: string;
  readonly context: TurnContext;
  readonly tools: readonly AgentTool[];
}

/** A sub-agent as the tool by which the main agent calls it. */
export function subAgentTool(parts: SubAgentParts, turn: SubAgentTurn): ToolDefinition {
  const { agent, context } = parts;
  const { name } = agent;
  return {
    name: `call_${name}_agent`,
    description: agent.description,
    inputSchema: Task,
    timeoutMs: TIMEOUT_MS,
    run: async (input, { id, signal }) => {
      context.emit.router({ from: 'main', to: name, step: 'call' });
      try {
        const { task } = Task.parse(input);
        const asked = { ...parts, context: { ...context, toolCallId: id, signal } };
        return await answerOf(runAgent(await requestOf(asked, turn, task)));
      } finally {
        context.emit.router({ from: name, to: 'main', step: 'return' });
      }
    },
  };
}

async function requestOf(
  { agent, plugin, context, tools }: SubAgentParts,
  turn: SubAgentTurn,
  task: string,
): Promise<AgentRequest> {
  const { models, chain, hooks, smallModel, summaries, limits, meter } = turn;
  const { signal, user } = context;
  const model = models.get(agent.model ?? 'subagent');
  const call = { plugin, hook: `prompt of ${agent.name}`, signal };
  const prompt = await hooks.ask(call, (both) =>
    typeof agent.prompt === 'string' ? agent.prompt : agent.prompt({ ...context, signal: both }),
  );
  if (!('ok' in prompt) || typeof prompt.ok !== 'string')
    throw new Error('This agent cannot be used in this turn: it could not be set up.');
  return {
    model,
    smallModel,
    summaries,
    limits,
    meter,
    system: composeSubAgentPrompt({ prompt: prompt.ok, ...user }),
    messages: [{ role: 'user', content: task }],
    tools: () => tools,
    hooks: chain.aroundModel({ agent: agent.name, model }),
    signal,
  };
}

/** What it said last, after its last tool; what came before was thinking aloud. */
async function answerOf(parts: AsyncIterable<AgentPart>): Promise<string> {
  let text = '';
  for await (const part of parts) {
    if (part.type === 'text') text += part.text;
    if (part.type === 'tool-start') text = '';
  }
  if (text.trim()) return text.trim();
  throw new Error('The agent ended without an answer.');
}
