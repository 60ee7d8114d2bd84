import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { RESERVED_TOOLS } from '../turn/tools/capability-tools.js';
import type { HookCalls } from './hook-calls.js';

/** Sees to it that every name the agent or another plugin knows means one thing. */
export class NameClaims {
  readonly #tools = new Map([...RESERVED_TOOLS].map((name) => [name, 'the host']));
  readonly #shared = new Map<string, string>();

  /** Claims all names of a plugin; those that are taken are faults of it. */
  claim({ name, tools, subAgents, shared }: LoadedPlugin, hooks: HookCalls): void {
    const owner = `the plugin ${name}`;
    for (const tool of tools) this.#take(this.#tools, owner, tool.name, hooks);
    for (const agent of subAgents)
      this.#take(this.#tools, owner, `call_${agent.name}_agent`, hooks);
    for (const key of Object.keys(shared)) this.#takeShared(owner, key, hooks);
  }

  #take(names: Map<string, string>, owner: string, tool: string, hooks: HookCalls): void {
    const taken = names.get(tool);
    if (taken)
      hooks.fail(
        `its tool ${tool} is called like one of ${taken}`,
        'Rename the tool, or switch one of the two off',
      );
    else names.set(tool, owner);
  }

  #takeShared(owner: string, key: string, hooks: HookCalls): void {
    const taken = this.#shared.get(key);
    if (taken)
      hooks.fail(
        `it shares ${key}, which ${taken} shares already`,
        'Rename the key, or switch one of the two off',
      );
    else this.#shared.set(key, owner);
  }
}
