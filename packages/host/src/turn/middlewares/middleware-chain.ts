import type { Middleware, TurnContext } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import type { JsonObject } from '@sibyl/protocol';
import type { AgentTool, ModelAnswer, ModelHooks } from '../../agent/agent.js';
import type { Model, ModelCall } from '../../agent/model/model.js';
import type { TurnContexts } from '../context/turn-contexts.js';
import type { Hooks } from '../hooks/hooks.js';
import { applyPatch } from './apply-patch.js';
import { callThrough } from './wrapped-call.js';

interface MiddlewareChainParts {
  readonly plugins: readonly LoadedPlugin[];
  readonly contexts: TurnContexts;
  readonly hooks: Hooks;
  readonly signal: AbortSignal;
}

interface Link {
  readonly middleware: Middleware;
  readonly turn: TurnContext;
  readonly plugin: string;
}

/** Who asks, and which model. */
interface Asker {
  readonly agent: string;
  readonly model: Model;
}

type Run = AgentTool['run'];

/** The plugins' middlewares around the calls of one turn, the first of them outermost. */
export class MiddlewareChain {
  readonly #links: readonly Link[];
  readonly #hooks: Hooks;
  readonly #signal: AbortSignal;

  constructor({ plugins, contexts, hooks, signal }: MiddlewareChainParts) {
    this.#hooks = hooks;
    this.#signal = signal;
    this.#links = plugins.flatMap((plugin) =>
      plugin.middlewares.map((middleware) => {
        return { middleware, turn: contexts.of(plugin), plugin: plugin.name };
      }),
    );
  }

  /** Around the model calls of an agent; nothing where nobody stands there. */
  aroundModel(asker: Asker): ModelHooks | undefined {
    if (!this.#links.some(({ middleware: m }) => m.beforeModel || m.afterModel)) return undefined;
    return {
      before: (call) => this.#before(asker, call),
      after: (answer) => this.#after(asker, answer),
    };
  }

  /** The tool as an agent calls it: through every middleware that wraps tool calls. */
  aroundTool(agent: string, tool: AgentTool): AgentTool {
    const run = this.#links
      .filter(({ middleware }) => middleware.wrapToolCall)
      .reduceRight<Run>(
        (next, link) => this.#wrap(link, { agent, name: tool.name }, next),
        tool.run,
      );
    return run === tool.run ? tool : { ...tool, run };
  }

  async #before({ agent, model }: Asker, call: ModelCall): Promise<ModelCall> {
    let current = call;
    for (const link of this.#links) {
      const { middleware } = link;
      if (!middleware.beforeModel) continue;
      const { system, messages, tools } = current;
      const { id, vision } = model;
      const request = { agent, model: { id, vision }, system, messages, tools };
      const before = current;
      const patched = await this.#callAround(link, 'beforeModel', async (signal) =>
        patchCall(before, await middleware.beforeModel?.(request, { ...link.turn, signal })),
      );
      current = patched ?? before;
    }
    return current;
  }

  async #after({ agent }: Asker, answer: ModelAnswer): Promise<void> {
    for (const link of this.#links) {
      const { middleware } = link;
      if (!middleware.afterModel) continue;
      await this.#callAround(link, 'afterModel', (signal) =>
        middleware.afterModel?.({ agent, ...answer }, { ...link.turn, signal }),
      );
    }
  }

  /** Calls a hook around a model call: its failure ends the turn, or returns undefined where it may be skipped. */
  async #callAround<T>(
    link: Link,
    hook: 'beforeModel' | 'afterModel',
    work: (signal: AbortSignal) => T | Promise<T>,
  ): Promise<T | undefined> {
    const call = this.#call(link, hook);
    if (mayBeSkipped(link)) {
      const answer = await this.#hooks.askForLeave(call, work);
      return 'ok' in answer ? answer.ok : undefined;
    }
    return this.#hooks.insist(call, work, (fault) =>
      this.#hooks.block(call, fault, 'This message was not answered'),
    );
  }

  #wrap(link: Link, { agent, name }: { agent: string; name: string }, next: Run): Run {
    const { middleware, turn } = link;
    const call = this.#call(link, 'wrapToolCall');
    return (input, { id, signal }) =>
      callThrough({
        input,
        wrap: async (callNext) => {
          const request = { agent, id, name, input };
          return middleware.wrapToolCall?.(request, callNext, { ...turn, toolCallId: id, signal });
        },
        next: async (changed: JsonObject) => next(changed, { id, signal }),
        timeoutMs: this.#hooks.timeoutMs,
        signal,
        onFailure: mayBeSkipped(link)
          ? { skip: (fault) => this.#hooks.logFault(call, fault) }
          : { fail: (fault, hasRun) => this.#hooks.block(call, fault, describeTool(name, hasRun)) },
      });
  }

  #call({ plugin, middleware }: Link, hook: string) {
    return { plugin, hook: `${hook} of ${middleware.name}`, signal: this.#signal };
  }
}

const mayBeSkipped = ({ middleware }: Link) => middleware.onFailure === 'skip';

const describeTool = (name: string, hasRun: boolean) =>
  hasRun
    ? `The tool ${name} may have run, but its result was blocked`
    : `The tool ${name} did not run: it was blocked`;

function patchCall(call: ModelCall, patch: unknown): ModelCall {
  if (patch === undefined || patch === null) return call;
  const patched = applyPatch(call, patch);
  if ('ok' in patched) return patched.ok;
  throw new Error(patched.fault);
}
