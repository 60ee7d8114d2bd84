import type { SubAgent, Tool } from '@sibyl/plugin-kit';

/** What a hook brought, without what cannot be used: plugins are not always type-checked. */
interface Brought<T> {
  readonly usable: readonly T[];
  readonly faults: readonly string[];
}

export const readTools = (brought: unknown): Brought<Tool> => read(brought, isTool, 'tool');

export const readSubAgents = (brought: unknown): Brought<SubAgent> =>
  read(brought, isSubAgent, 'sub-agent');

function read<T>(
  brought: unknown,
  isUsable: (item: unknown) => item is T,
  what: string,
): Brought<T> {
  if (!Array.isArray(brought)) return { usable: [], faults: [`gave no list of ${what}s`] };
  const usable = brought.filter(isUsable);
  const left = brought.length - usable.length;
  return {
    usable,
    faults: left > 0 ? [`gave ${left} of ${brought.length} that is no ${what}`] : [],
  };
}

function isTool(item: unknown): item is Tool {
  if (!isObject(item)) return false;
  const { name, description, inputSchema, run } = item;
  return isText(name) && isText(description) && isObject(inputSchema) && typeof run === 'function';
}

function isSubAgent(item: unknown): item is SubAgent {
  if (!isObject(item)) return false;
  const { name, description, prompt, tools = [] } = item;
  const isPrompt = isText(prompt) || typeof prompt === 'function';
  return isText(name) && isText(description) && isPrompt && Array.isArray(tools);
}

const isText = (value: unknown) => typeof value === 'string';

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;
