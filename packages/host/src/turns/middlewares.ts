import type { Middleware, TurnContext } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import { JsonObject, OracleError } from '@sibyl/protocol';
import { z } from 'zod';
import type { AgentTool, ModelAnswer, ModelHooks } from '../agent/agent.js';
import { toWellFormed } from '../agent/conversation.js';
import { CallIds } from '../agent/run-tools.js';
import type { Model, ModelCall, ModelMessage, ModelTool } from '../models/model.js';
import { type Hooks, soundError } from './hooks.js';
import type { TurnContexts } from './turn-context.js';

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
  private readonly links: readonly Link[];
  private readonly hooks: Hooks;
  private readonly signal: AbortSignal;

  constructor({ plugins, contexts, hooks, signal }: MiddlewareChainParts) {
    this.hooks = hooks;
    this.signal = signal;
    this.links = plugins.flatMap((plugin) =>
      plugin.middlewares.map((middleware) => {
        return { middleware, turn: contexts.of(plugin), plugin: plugin.name };
      }),
    );
  }

  /** Around the model calls of an agent; nothing where nobody stands there. */
  aroundModel(asker: Asker): ModelHooks | undefined {
    if (!this.links.some(({ middleware: m }) => m.beforeModel || m.afterModel)) return undefined;
    return {
      before: (call) => this.before(asker, call),
      after: (answer) => this.after(asker, answer),
    };
  }

  /** The tool as an agent calls it: through every middleware that wraps tool calls. */
  aroundTool(agent: string, tool: AgentTool): AgentTool {
    const run = this.links
      .filter(({ middleware }) => middleware.wrapToolCall)
      .reduceRight<Run>(
        (next, link) => this.wrap(link, { agent, name: tool.name }, next),
        tool.run,
      );
    return run === tool.run ? tool : { ...tool, run };
  }

  private async before({ agent, model }: Asker, call: ModelCall): Promise<ModelCall> {
    let current = call;
    for (const link of this.links) {
      const { middleware } = link;
      if (!middleware.beforeModel) continue;
      const { system, messages, tools } = current;
      const { id, vision } = model;
      const request = { agent, model: { id, vision }, system, messages, tools };
      const before = current;
      const patched = await this.callAround(link, 'beforeModel', async (signal) =>
        patchCall(before, await middleware.beforeModel?.(request, { ...link.turn, signal })),
      );
      current = patched ?? before;
    }
    return current;
  }

  private async after({ agent }: Asker, answer: ModelAnswer): Promise<void> {
    for (const link of this.links) {
      const { middleware } = link;
      if (!middleware.afterModel) continue;
      await this.callAround(link, 'afterModel', (signal) =>
        middleware.afterModel?.({ agent, ...answer }, { ...link.turn, signal }),
      );
    }
  }

  /** Calls a hook around a model call: its failure ends the turn, or returns undefined where it may be skipped. */
  private async callAround<T>(
    link: Link,
    hook: 'beforeModel' | 'afterModel',
    work: (signal: AbortSignal) => T | Promise<T>,
  ): Promise<T | undefined> {
    const call = this.call(link, hook);
    if (mayBeSkipped(link)) {
      const answer = await this.hooks.askForLeave(call, work);
      return 'ok' in answer ? answer.ok : undefined;
    }
    return this.hooks.insist(call, work, (fault) =>
      this.hooks.block(call, fault, 'This message was not answered'),
    );
  }

  private wrap(link: Link, { agent, name }: { agent: string; name: string }, next: Run): Run {
    const { middleware, turn } = link;
    const call = this.call(link, 'wrapToolCall');
    return (input, { id, signal }) =>
      callThrough({
        input,
        wrap: async (callNext) => {
          const request = { agent, id, name, input };
          return middleware.wrapToolCall?.(request, callNext, { ...turn, toolCallId: id, signal });
        },
        next: async (changed: JsonObject) => next(changed, { id, signal }),
        timeoutMs: this.hooks.timeoutMs,
        signal,
        onFailure: mayBeSkipped(link)
          ? { skip: (fault) => this.hooks.logFault(call, fault) }
          : { fail: (fault, hasRun) => this.hooks.block(call, fault, describeTool(name, hasRun)) },
      });
  }

  private call({ plugin, middleware }: Link, hook: string) {
    return { plugin, hook: `${hook} of ${middleware.name}`, signal: this.signal };
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

const UserPart = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({ type: z.literal('file'), mediaType: z.string(), data: z.instanceof(Uint8Array) }),
]);
const ToolCall = z.object({ id: z.string(), name: z.string(), input: z.string() });
const ToolResult = z.object({
  id: z.string(),
  name: z.string(),
  output: z.string(),
  isError: z.boolean(),
});
const Message = z.discriminatedUnion('role', [
  z.object({ role: z.literal('user'), content: z.union([z.string(), z.array(UserPart)]) }),
  z.object({
    role: z.literal('assistant'),
    text: z.string(),
    reasoning: z.string().optional(),
    toolCalls: z.array(ToolCall).optional(),
    providerData: JsonObject.optional(),
  }),
  z.object({ role: z.literal('tool'), results: z.array(ToolResult) }),
]);
const Tool = z.object({ name: z.string(), description: z.string(), inputSchema: JsonObject });

const Patch = z.object({
  system: z.string().optional(),
  messages: z.array(z.custom<ModelMessage>((value) => Message.safeParse(value).success)).optional(),
  tools: z.array(z.custom<ModelTool>((value) => Tool.safeParse(value).success)).optional(),
});

/** The call with what a middleware changes of it, or what is wrong with the change. */
function applyPatch(
  call: ModelCall,
  patch: unknown,
): { readonly ok: ModelCall } | { readonly fault: string } {
  const { data, error } = Patch.safeParse(patch);
  if (error) return { fault: `its change of a model call is unusable: ${z.prettifyError(error)}` };
  const { system = call.system, messages, tools = call.tools } = data;
  const wellFormed = messages ? toWellFormed(messages, new CallIds()) : call.messages;
  if (wellFormed.length === 0) return { fault: 'its change of a model call leaves no message' };
  return { ok: { ...call, system, messages: wellFormed, tools } };
}

/** One middleware around one tool call. */
export interface Wrapping {
  readonly input: JsonObject;
  /** The middleware's own code. */
  readonly wrap: (next: (input: JsonObject) => Promise<unknown>) => Promise<unknown>;
  /** The call itself, or the next middleware. */
  readonly next: (input: JsonObject) => Promise<unknown>;
  /** How long the middleware may take beside the call. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly onFailure: OnFailure;
}

/** A middleware that fails either fails the call, with the error that `fail` returns, or is skipped and reported. */
type OnFailure =
  | { readonly fail: (fault: Error, hasRun: boolean) => Error }
  | { readonly skip: (fault: Error) => void };

/** Makes the call through the middleware. */
export function callThrough(wrapping: Wrapping): Promise<unknown> {
  return new WrappedCall(wrapping).run();
}

class WrappedCall {
  private readonly wrapping: Wrapping;
  private readonly overdue = Promise.withResolvers<never>();
  /** The outcome of the call, each time it was made. */
  private readonly made: Promise<unknown>[] = [];
  /** What the call itself threw, each time it was made. */
  private readonly callFaults = new Set<unknown>();
  private underWay = 0;
  private timer: NodeJS.Timeout | undefined;
  private isOver = false;

  constructor(wrapping: Wrapping) {
    this.wrapping = wrapping;
  }

  async run(): Promise<unknown> {
    const { wrap } = this.wrapping;
    this.startClock();
    try {
      return await Promise.race([wrap((input) => this.next(input)), this.overdue.promise]);
    } catch (fault) {
      return await this.endFailed(fault);
    } finally {
      this.isOver = true;
      clearTimeout(this.timer);
    }
  }

  private next(input: JsonObject): Promise<unknown> {
    const made = this.make(input);
    // The middleware may never look at it.
    made.catch(() => undefined);
    return made;
  }

  private async make(input: JsonObject): Promise<unknown> {
    // A middleware that was given up must not make the call a second time.
    if (this.isOver) throw new Error('This middleware failed, and its call is over');
    this.wrapping.signal.throwIfAborted();
    if (typeof input !== 'object' || input === null || Array.isArray(input))
      throw new TypeError('The input of a tool is an object');
    this.underWay += 1;
    clearTimeout(this.timer);
    const made = this.wrapping.next(input).finally(() => {
      this.underWay -= 1;
      if (this.underWay === 0 && !this.isOver) this.startClock();
    });
    made.catch((fault) => this.callFaults.add(fault));
    this.made.push(made);
    return made;
  }

  private async endFailed(fault: unknown): Promise<unknown> {
    const { input, next, signal, onFailure } = this.wrapping;
    this.isOver = true;
    const error = soundError(fault);
    // Nothing of the call may still run once its result is reported; an aborted turn does not wait.
    if (!signal.aborted) await Promise.allSettled(this.made);
    if (error instanceof OracleError) throw error;
    signal.throwIfAborted();
    // The call failed, and the middleware passed that on.
    if (this.callFaults.has(fault)) throw fault;
    if ('fail' in onFailure) throw onFailure.fail(error, this.made.length > 0);
    onFailure.skip(error);
    return this.made.at(-1) ?? next(input);
  }

  private startClock(): void {
    const { timeoutMs } = this.wrapping;
    const fault = new Error(`did not answer within ${timeoutMs / 1000} s`);
    this.timer = setTimeout(() => this.overdue.reject(fault), timeoutMs);
  }
}
