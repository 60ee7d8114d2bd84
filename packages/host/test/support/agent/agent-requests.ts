import {
  type AgentPart,
  type AgentRequest,
  type AgentTool,
  unmetered,
} from '../../../src/agent/agent.js';
import { runAgent } from '../../../src/agent/run-agent.js';
import { PausedError } from '../../../src/agent/steps.js';
import { ScriptedModel } from './scripted-model.js';

interface RequestChanges extends Partial<Omit<AgentRequest, 'tools' | 'limits'>> {
  readonly tools?: readonly AgentTool[];
  readonly limits?: { readonly steps: number; readonly contextTokens: number };
}

/** A request with defaults for everything that a test does not set. */
export function requestTo(
  model: AgentRequest['model'],
  changes: RequestChanges = {},
): AgentRequest {
  const { tools = [], limits = { steps: 10, contextTokens: 100_000 }, ...others } = changes;
  return {
    model,
    smallModel: new ScriptedModel(),
    system: 'You are Sibyl.',
    messages: [{ role: 'user', content: 'Hello' }],
    tools: () => tools,
    limits: { ...limits, steps: { limit: limits.steps, taken: 0 } },
    meter: unmetered,
    signal: new AbortController().signal,
    ...others,
  };
}

/** A tool that takes any object. */
export function tool(
  name: string,
  run: AgentTool['run'],
  changes: Partial<AgentTool> = {},
): AgentTool {
  return {
    name,
    description: `The tool ${name}.`,
    inputSchema: { type: 'object', properties: {} },
    timeoutMs: 60_000,
    check: (input) => ({ ok: input as Record<string, unknown> }),
    run,
    ...changes,
  };
}

/** A tool that runs an agent and returns its text. */
export function agentTool(name: string, createRequest: () => AgentRequest): AgentTool {
  return tool(
    name,
    async (_, call) => {
      const { parts, thrown } = await runToEnd({ ...createRequest(), ...call.nested });
      if (thrown instanceof PausedError) call.pause(thrown);
      if (thrown) throw thrown;
      return joinText(parts).trim();
    },
    { isAgent: true },
  );
}

/** Runs the agent to its end; returns its parts and the error it throws. */
export async function runToEnd(
  request: AgentRequest,
  onPart: (part: AgentPart) => void = () => undefined,
): Promise<{ readonly parts: AgentPart[]; readonly thrown: unknown }> {
  const parts: AgentPart[] = [];
  try {
    for await (const part of runAgent(request)) {
      parts.push(part);
      onPart(part);
    }
    return { parts, thrown: undefined };
  } catch (thrown) {
    return { parts, thrown };
  }
}

export function filterParts<T extends AgentPart['type']>(parts: readonly AgentPart[], type: T) {
  return parts.filter((part): part is Extract<AgentPart, { type: T }> => part.type === type);
}

/** Lists the finished calls in order. */
export function listFinishedCalls(parts: readonly AgentPart[]) {
  return filterParts(parts, 'tool-end').map(({ call }) => call);
}

export function joinText(parts: readonly AgentPart[]): string {
  return filterParts(parts, 'text')
    .map(({ text }) => text)
    .join('');
}
