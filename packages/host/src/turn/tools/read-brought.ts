import type { SubAgent, Tool } from '@sibyl/plugin-kit';
import { subAgentFault, toolFault } from '@sibyl/plugin-kit/rules';

/** What a hook brought, parted from what cannot be used. */
export interface Brought<T> {
  readonly usable: readonly T[];
  readonly faults: readonly string[];
}

export const readTools = (brought: readonly unknown[]) => read<Tool>(brought, toolFault);

export const readSubAgents = (brought: readonly unknown[]) =>
  read<SubAgent>(brought, subAgentFault);

function read<T>(
  brought: readonly unknown[],
  faultOf: (item: unknown) => string | undefined,
): Brought<T> {
  const usable: T[] = [];
  const faults: string[] = [];
  for (const item of brought) {
    const fault = faultOf(item);
    if (fault === undefined) usable.push(item as T);
    else faults.push(`${nameOf(item)} cannot be used: ${fault}`);
  }
  return { usable, faults };
}

function nameOf(item: unknown): string {
  const name = (item as { name?: unknown } | null | undefined)?.name;
  return typeof name === 'string' && name ? `The tool ${name.slice(0, 100)}` : 'A tool';
}
