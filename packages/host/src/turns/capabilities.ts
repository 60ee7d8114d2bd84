import type { SessionState, Visibility } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { z } from 'zod';
import type { AgentTool } from '../agent/agent.js';
import type { Capability } from '../agent/prompt.js';
import { toAgentTool } from '../agent/tool-schema.js';
import type { MiddlewareChain } from './middlewares.js';

const KEY = 'capabilities';
const LoadedNames = z.array(z.string()).default([]).catch([]);

interface CapabilitiesParts {
  readonly plugins: readonly LoadedPlugin[];
  readonly tools: readonly TurnTool[];
  /** Where the session keeps what was loaded. */
  readonly state: SessionState;
  readonly chain: MiddlewareChain;
}

/** What the agent can do in a turn: what it always can, and what was loaded for the session. */
export class Capabilities {
  private readonly parts: CapabilitiesParts;
  private readonly core: readonly AgentTool[];
  private readonly loaded: Set<string>;
  #offered: readonly AgentTool[];

  private constructor(parts: CapabilitiesParts, loaded: readonly string[]) {
    this.parts = parts;
    this.loaded = new Set(loaded);
    const core = hasMore(parts.tools)
      ? capabilityTools({ list: () => this.list(), load: (names) => this.load(names) })
      : [];
    this.core = core.map((tool) => parts.chain.aroundTool('main', tool));
    this.#offered = this.offer();
  }

  static async open(parts: CapabilitiesParts): Promise<Capabilities> {
    const loaded = hasMore(parts.tools) ? await parts.state.get(KEY) : [];
    return new Capabilities(parts, LoadedNames.parse(loaded));
  }

  /** The same list until something is loaded. */
  get offered(): readonly AgentTool[] {
    return this.#offered;
  }

  /** The capabilities that the prompt describes. */
  get described(): readonly Capability[] {
    const { plugins } = this.parts;
    return plugins
      .filter(({ name, manifest }) => manifest.visibility === 'always' || this.loaded.has(name))
      .map(({ name, manifest }) => ({ ...manifest, tools: this.toolsOf(name, 'offered') }));
  }

  private offer(): readonly AgentTool[] {
    const usable = this.parts.tools.filter((found) => this.isOffered(found));
    return [...this.core, ...usable.map(({ tool }) => tool)];
  }

  private isOffered({ visibility, plugin }: TurnTool): boolean {
    return visibility !== 'on-demand' || this.loaded.has(plugin.name);
  }

  private toolsOf(plugin: string, which: 'offered' | 'on-demand'): string[] {
    return this.parts.tools
      .filter((found) => found.plugin.name === plugin)
      .filter((found) =>
        which === 'offered' ? this.isOffered(found) : found.visibility === 'on-demand',
      )
      .map(({ tool }) => tool.name);
  }

  private list(): unknown {
    const capabilities = this.loadable().map(({ name, manifest }) => {
      const { visibility: _, ...described } = manifest;
      const tools = this.toolsOf(name, 'on-demand');
      return { name, ...described, isLoaded: this.loaded.has(name), tools };
    });
    return { capabilities };
  }

  private async load(names: readonly string[]): Promise<unknown> {
    const wanted = new Set(names);
    const found = this.loadable().filter(({ name }) => wanted.has(name));
    const loaded = new Set([...this.loaded, ...found.map(({ name }) => name)]);
    if (loaded.size > this.loaded.size) await this.parts.state.set(KEY, [...loaded]);
    for (const { name } of found) this.loaded.add(name);
    this.#offered = this.offer();
    const unknown = [...wanted].filter((name) => !loaded.has(name));
    return {
      loaded: found.map(({ name, manifest: { whenToUse, whenNotToUse } }) => {
        return { name, tools: this.toolsOf(name, 'on-demand'), whenToUse, whenNotToUse };
      }),
      ...(unknown.length > 0 && { unknown, hint: 'list_capabilities tells the names' }),
    };
  }

  private loadable(): readonly LoadedPlugin[] {
    const names = new Set(
      this.parts.tools.flatMap(({ visibility, plugin }) =>
        visibility === 'on-demand' ? [plugin.name] : [],
      ),
    );
    return this.parts.plugins.filter(({ name }) => names.has(name));
  }
}

const hasMore = (tools: readonly TurnTool[]) =>
  tools.some(({ visibility }) => visibility === 'on-demand');

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
function capabilityTools({ list, load }: CapabilityActions): readonly AgentTool[] {
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
    return bound.ok ? [bound.ok.tool] : [];
  });
}

/** Something a plugin brings to a turn for the agent to use. */
export interface TurnTool {
  readonly plugin: LoadedPlugin;
  readonly visibility: Visibility;
  readonly tool: AgentTool;
  /** About the length of its schema, which every model call sends. */
  readonly characters: number;
}
