import { z } from 'zod';
import type { AgentTool } from '../../agent/agent.js';
import { toAgentTool } from '../../agent/tools/to-agent-tool.js';

/** Names that no tool of a plugin can have. */
export const RESERVED_TOOLS: ReadonlySet<string> = new Set([
  'list_capabilities',
  'load_capability',
]);

const NoInput = z.object({});
const Names = z.object({
  names: z
    .array(z.string().min(1).max(100))
    .min(1)
    .max(20)
    .describe('As list_capabilities names them'),
});

interface CapabilityActions {
  readonly list: () => unknown;
  readonly load: (names: readonly string[]) => Promise<unknown>;
}

/** The tools by which the agent finds and loads what it can do beyond its other tools. */
export function capabilityTools({ list, load }: CapabilityActions): readonly AgentTool[] {
  const definitions = [
    {
      name: 'list_capabilities',
      description:
        'Lists what you can do beyond your present tools, with the tools each capability would bring. Look here before you say that you cannot do something, and when asked what you can do.',
      inputSchema: NoInput,
      run: async () => list(),
    },
    {
      name: 'load_capability',
      description:
        'Loads capabilities from list_capabilities, several at once if you need them. From your next step on, and for the rest of this conversation, their tools are yours.',
      inputSchema: Names,
      run: async (input: unknown) => load(Names.parse(input).names),
    },
  ];
  return definitions.flatMap((definition) => {
    const bound = toAgentTool(definition);
    return 'ok' in bound ? [bound.ok] : [];
  });
}
