import type { LoadedPlugin, SessionState, Visibility } from '@sibyl/plugin-kit/host';
import { z } from 'zod';
import type { AgentTool } from '../agent/agent.js';
import type { Capability } from '../agent/prompt.js';
import { toAgentTool } from '../agent/tool-schema.js';
import type { MiddlewareChain } from './middlewares.js';

const KEY = 'capabilities';
const LoadedNames = z.array(z.string()).default([]).catch([]);

interface CapabilitiesDeps {
  readonly plugins: readonly LoadedPlugin[];
  readonly tools: readonly TurnTool[];
  /** Stores the names of loaded plugins per session. */
  readonly state: SessionState;
  readonly chain: MiddlewareChain;
}

/** The agent's tools in a turn: those always available, and those loaded for the session. */
export class Capabilities {
  private readonly deps: CapabilitiesDeps;
  private readonly core: readonly AgentTool[];
  private readonly loaded: Set<string>;
  private usableTools: readonly AgentTool[];

  private constructor(deps: CapabilitiesDeps, loaded: readonly string[]) {
    this.deps = deps;
    this.loaded = new Set(loaded);
    const core = hasOnDemandTools(deps.tools)
      ? createCapabilityTools({ list: () => this.list(), load: (names) => this.load(names) })
      : [];
    this.core = core.map((tool) => deps.chain.aroundTool('main', tool));
    this.usableTools = this.listUsableTools();
  }

  static async open(deps: CapabilitiesDeps): Promise<Capabilities> {
    const loaded = hasOnDemandTools(deps.tools) ? await deps.state.get(KEY) : [];
    return new Capabilities(deps, LoadedNames.parse(loaded));
  }

  /** The same list until something is loaded. */
  get tools(): readonly AgentTool[] {
    return this.usableTools;
  }

  /** The capabilities that the prompt describes. */
  get described(): readonly Capability[] {
    const { plugins } = this.deps;
    return plugins
      .filter(({ name, manifest }) => manifest.visibility === 'always' || this.loaded.has(name))
      .map(({ name, manifest }) => ({ manifest, tools: this.listToolNames(name, 'offered') }));
  }

  private listUsableTools(): readonly AgentTool[] {
    const usable = this.deps.tools.filter((found) => this.isUsable(found));
    return [...this.core, ...usable.map(({ tool }) => tool)];
  }

  private isUsable({ visibility, plugin }: TurnTool): boolean {
    return visibility !== 'on-demand' || this.loaded.has(plugin.name);
  }

  private listToolNames(plugin: string, which: 'offered' | 'on-demand'): string[] {
    return this.deps.tools
      .filter((found) => found.plugin.name === plugin)
      .filter((found) =>
        which === 'offered' ? this.isUsable(found) : found.visibility === 'on-demand',
      )
      .map(({ tool }) => tool.name);
  }

  private list(): unknown {
    const capabilities = this.loadable().map(({ name, manifest }) => {
      const { visibility: _, ...described } = manifest;
      const tools = this.listToolNames(name, 'on-demand');
      return { name, ...described, isLoaded: this.loaded.has(name), tools };
    });
    return { capabilities };
  }

  private async load(names: readonly string[]): Promise<unknown> {
    const wanted = new Set(names);
    const found = this.loadable().filter(({ name }) => wanted.has(name));
    const loaded = new Set([...this.loaded, ...found.map(({ name }) => name)]);
    if (loaded.size > this.loaded.size) await this.deps.state.set(KEY, [...loaded]);
    for (const { name } of found) this.loaded.add(name);
    this.usableTools = this.listUsableTools();
    const unknown = [...wanted].filter((name) => !loaded.has(name));
    return {
      loaded: found.map(({ name, manifest: { whenToUse, whenNotToUse } }) => {
        return { name, tools: this.listToolNames(name, 'on-demand'), whenToUse, whenNotToUse };
      }),
      ...(unknown.length > 0 && { unknown, hint: 'list_capabilities lists the names' }),
    };
  }

  private loadable(): readonly LoadedPlugin[] {
    const names = new Set(
      this.deps.tools.flatMap(({ visibility, plugin }) =>
        visibility === 'on-demand' ? [plugin.name] : [],
      ),
    );
    return this.deps.plugins.filter(({ name }) => names.has(name));
  }
}

const hasOnDemandTools = (tools: readonly TurnTool[]) =>
  tools.some(({ visibility }) => visibility === 'on-demand');

/** Names that plugins cannot use for tools. */
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

/** The tools with which the agent finds and loads more tools. */
function createCapabilityTools({ list, load }: CapabilityActions): readonly AgentTool[] {
  const definitions = [
    {
      name: 'list_capabilities',
      description:
        'Lists what you can do beyond your present tools, with the tools of each capability. Look here before you say that you cannot do something, and when asked what you can do.',
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

/** A tool of a plugin in a turn. */
export interface TurnTool {
  readonly plugin: LoadedPlugin;
  readonly visibility: Visibility;
  readonly tool: AgentTool;
  /** About the length of its schema, which every model call sends. */
  readonly characters: number;
}
