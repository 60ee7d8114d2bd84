import type { LoadedPlugin, SessionState, Visibility } from '@sibyl/plugin-kit/host';
import { z } from 'zod';
import type { AgentTool } from '../../agent/agent.js';
import type { Capability } from '../../agent/prompt.js';
import { toAgentTool } from '../../agent/tool-schema.js';
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
  /** The same list until something is loaded. */
  tools: readonly AgentTool[];
  /** The capabilities that the prompt describes. */
  described: readonly Capability[];
  private readonly deps: CapabilitiesDeps;
  private readonly core: readonly AgentTool[];
  private readonly loaded: Set<string>;

  private constructor(deps: CapabilitiesDeps, loaded: readonly string[] | undefined) {
    this.deps = deps;
    this.loaded = new Set(loaded);
    this.core = loaded ? this.createCore() : [];
    ({ tools: this.tools, described: this.described } = this.select());
  }

  static async open(deps: CapabilitiesDeps): Promise<Capabilities> {
    for (const { visibility } of deps.tools)
      if (visibility === 'on-demand')
        return new Capabilities(deps, LoadedNames.parse(await deps.state.get(KEY)));
    return new Capabilities(deps, undefined);
  }

  /** The tools that are loaded or need not be, and what the prompt says about their plugins. */
  private select(): Pick<Capabilities, 'tools' | 'described'> {
    const tools = [...this.core];
    const names = new Map<string, string[]>();
    for (const { tool, visibility, plugin } of this.deps.tools) {
      if (visibility === 'on-demand' && !this.loaded.has(plugin.name)) continue;
      tools.push(tool);
      const own = names.get(plugin.name);
      if (own) own.push(tool.name);
      else names.set(plugin.name, [tool.name]);
    }
    const described: Capability[] = [];
    for (const { name, manifest } of this.deps.plugins)
      if (manifest.visibility === 'always' || this.loaded.has(name))
        described.push({ manifest, tools: names.get(name) ?? [] });
    return { tools, described };
  }

  /** The tools with which the agent finds and loads more tools. */
  private createCore(): readonly AgentTool[] {
    const { chain } = this.deps;
    const list = { ...LIST, run: async () => this.list() };
    const load = {
      ...LOAD,
      run: async (input: unknown) => this.load(Names.parse(input).names),
    };
    return [chain.aroundTool('main', list), chain.aroundTool('main', load)];
  }

  private list(): unknown {
    const capabilities = this.loadable().map(({ name, manifest }) => {
      const { visibility: _, ...described } = manifest;
      const tools = this.listOnDemand(name);
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
    ({ tools: this.tools, described: this.described } = this.select());
    const unknown = [...wanted].filter((name) => !loaded.has(name));
    return {
      loaded: found.map(({ name, manifest: { whenToUse, whenNotToUse } }) => {
        return { name, tools: this.listOnDemand(name), whenToUse, whenNotToUse };
      }),
      ...(unknown.length > 0 && { unknown, hint: 'list_capabilities lists the names' }),
    };
  }

  private loadable(): readonly LoadedPlugin[] {
    return this.deps.plugins.filter(({ name }) => this.listOnDemand(name).length > 0);
  }

  private listOnDemand(name: string): string[] {
    return this.deps.tools.flatMap(({ visibility, plugin, tool }) =>
      visibility === 'on-demand' && plugin.name === name ? [tool.name] : [],
    );
  }
}

const Names = z.object({
  names: z
    .array(z.string().min(1).max(100))
    .min(1)
    .max(20)
    .describe('As list_capabilities names them'),
});

const LIST = defineCore(
  'list_capabilities',
  'Lists what you can do beyond your present tools, with the tools of each capability. Look here before you say that you cannot do something, and when asked what you can do.',
  z.object({}),
);
const LOAD = defineCore(
  'load_capability',
  'Loads capabilities from list_capabilities, several at once if you need them. From your next step on, and for the rest of this conversation, their tools are yours.',
  Names,
);

/** Names that plugins cannot use for tools. */
export const RESERVED_TOOLS: ReadonlySet<string> = new Set([LIST.name, LOAD.name]);

/** A tool without what it does in a turn. */
function defineCore(name: string, description: string, inputSchema: z.ZodObject): AgentTool {
  const bound = toAgentTool({ name, description, inputSchema, run: async () => undefined });
  if (bound.ok) return bound.ok.tool;
  throw new Error(`The tool ${name}: ${bound.error}`);
}

/** A tool of a plugin in a turn. */
export interface TurnTool {
  readonly plugin: LoadedPlugin;
  readonly visibility: Visibility;
  readonly tool: AgentTool;
  /** About the length of its schema, which every model call sends. */
  readonly characters: number;
}
