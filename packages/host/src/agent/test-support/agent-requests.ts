import type { AgentPart, AgentRequest, AgentTool } from '../agent.js';
import { runAgent } from '../run-agent.js';
import { ScriptedModel } from './scripted-model.js';

/** A request with all that a test does not care about filled in. */
export function requestTo(
  model: AgentRequest['model'],
  changes: Partial<AgentRequest> = {},
): AgentRequest {
  return {
    model,
    smallModel: new ScriptedModel(),
    system: 'You are Sibyl.',
    messages: [{ role: 'user', content: 'Hello' }],
    tools: [],
    limits: { steps: 10, contextTokens: 100_000 },
    signal: new AbortController().signal,
    ...changes,
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

/** Runs the agent to its end; what it throws is given back beside what came before. */
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

export function partsOf<T extends AgentPart['type']>(parts: readonly AgentPart[], type: T) {
  return parts.filter((part): part is Extract<AgentPart, { type: T }> => part.type === type);
}

/** The calls that ended, in the order they did. */
export function endsOf(parts: readonly AgentPart[]) {
  return partsOf(parts, 'tool-end').map(({ call }) => call);
}

export function textOf(parts: readonly AgentPart[]): string {
  return partsOf(parts, 'text')
    .map(({ text }) => text)
    .join('');
}
