import type { Middleware, ModelRequest, ToolCall } from '@sibyl/plugin-kit';
import { type LoadedPlugin, ModelResponse } from '@sibyl/plugin-kit/host';
import { JsonObject, OracleError } from '@sibyl/protocol';
import { abortable } from '@sibyl/server-kit';
import { z } from 'zod';
import type { AgentTool, ModelHooks, WrappedModelCall } from '../../agent/agent.js';
import { toWellFormed } from '../../agent/conversation.js';
import { isPause } from '../../agent/steps.js';
import type { Model, ModelCall, ModelMessage, ModelTool } from '../../models/model.js';
import { type Hooks, toError } from './hooks.js';
import { createInterrupt } from './tool-interrupt.js';
import type { TurnReach } from './tool-policy.js';
import type { TurnContexts } from './turn-context.js';

interface MiddlewareChainDeps {
  readonly contexts: TurnContexts;
  readonly hooks: Hooks;
  readonly reach: TurnReach;
  readonly signal: AbortSignal;
}

interface Link {
  readonly middleware: Middleware;
  readonly plugin: LoadedPlugin;
}

/** The agent that calls a model. */
interface ModelCaller {
  readonly agent: string;
  readonly model: Model;
}

type Run = AgentTool['run'];
type CallModel = (call: ModelCall) => Promise<ModelResponse>;

/** The plugins' middlewares around the calls of one turn, the first of them outermost. */
export class MiddlewareChain {
  private readonly modelLinks: Link[] = [];
  private readonly toolLinks: Link[] = [];
  private readonly contexts: TurnContexts;
  private readonly hooks: Hooks;
  private readonly signal: AbortSignal;

  constructor({ contexts, hooks, reach, signal }: MiddlewareChainDeps) {
    this.contexts = contexts;
    this.hooks = hooks;
    this.signal = signal;
    for (const plugin of contexts.concerned)
      for (const middleware of plugin.middlewares) {
        const { onFailure, reach: own, wrapModel, wrapTool } = middleware;
        // One that may not be skipped protects something.
        const isUsed = onFailure !== 'skip' || reach.permitsAddition(own);
        if (isUsed && wrapModel) this.modelLinks.push({ middleware, plugin });
        if (isUsed && wrapTool) this.toolLinks.push({ middleware, plugin });
      }
  }

  /** Wraps the model calls of an agent; undefined if no middleware does. */
  aroundModel(caller: ModelCaller): ModelHooks | undefined {
    if (this.modelLinks.length === 0) return undefined;
    return { begin: (call) => this.begin(caller, call) };
  }

  /** The tool as an agent calls it: through every middleware that wraps tool calls. */
  aroundTool(agent: string, tool: AgentTool): AgentTool {
    if (this.toolLinks.length === 0) return tool;
    const run = this.toolLinks.reduceRight<Run>(
      (next, link) => this.wrapTool(link, { agent, name: tool.name }, next),
      tool.run,
    );
    return { ...tool, run };
  }

  /** Runs the middlewares up to the model call; they continue when it is finished or failed. */
  private async begin(caller: ModelCaller, call: ModelCall): Promise<WrappedModelCall> {
    const started = Promise.withResolvers<ModelCall>();
    const answered = Promise.withResolvers<ModelResponse>();
    // The middlewares may not wait for it, or the turn may not wait for them.
    answered.promise.catch(() => undefined);
    let callModel: CallModel = (made) => {
      started.resolve(made);
      return answered.promise;
    };
    for (const link of this.modelLinks.toReversed())
      callModel = this.wrapModel(link, caller, callModel);
    const ended = callModel(call);
    ended.catch(started.reject);
    return {
      call: await abortable(() => started.promise, this.signal),
      finish: async (answer) => {
        answered.resolve(new ModelResponse(answer));
        await abortable(() => ended, this.signal);
      },
      fail: answered.reject,
    };
  }

  private wrapModel(link: Link, { agent, model }: ModelCaller, next: CallModel): CallModel {
    const { middleware, plugin } = link;
    return (call) => {
      const { system, messages, tools } = call;
      const request = {
        agent,
        model: { id: model.id, vision: model.facts.vision },
        system,
        messages,
        tools,
      };
      return callThrough({
        input: call,
        wrap: async (callNext) => {
          let response: Promise<ModelResponse> | undefined;
          const callOnce = (changed: ModelRequest) => {
            if (response) throw new Error('it called next twice');
            response = callNext(patchCall(call, changed));
            return response;
          };
          await middleware.wrapModel?.(request, callOnce, this.contexts.of(plugin));
          // The answer has been streamed: what the middleware returns cannot change it.
          return response ?? Promise.reject(new Error('it did not call next'));
        },
        next,
        ...this.limit(link, 'wrapModel', () => 'This message was not answered'),
        signal: this.signal,
      });
    };
  }

  private wrapTool(link: Link, { agent, name }: { agent: string; name: string }, next: Run): Run {
    const { middleware, plugin } = link;
    return (input, call) => {
      const { id, signal } = call;
      const turn = this.contexts.of(plugin);
      const context = { ...turn, toolCallId: id, signal, interrupt: createInterrupt(call) };
      return callThrough({
        input,
        wrap: async (callNext) => {
          const callTool = (changed: ToolCall) => callNext(readInput(changed));
          try {
            return await middleware.wrapTool?.({ agent, id, name, input }, callTool, context);
          } finally {
            // A call that waits for an answer has neither a result nor an error, even if the middleware has.
            call.throwIfPaused();
          }
        },
        next: async (changed: JsonObject) => {
          call.throwIfPaused();
          return next(changed, call);
        },
        ...this.limit(link, 'wrapTool', (hasRun) => describeToolFailure(name, hasRun)),
        signal,
      });
    };
  }

  /** The time limit of a middleware, and what its failure means. */
  private limit(
    { plugin, middleware }: Link,
    hook: string,
    describe: (hasRun: boolean) => string,
  ): Pick<Wrapping<never, never>, 'timeoutMs' | 'onFailure'> {
    const { hooks } = this;
    const call = { plugin: plugin.name, hook: `${hook} of ${middleware.name}` };
    const onFailure: OnFailure =
      middleware.onFailure === 'skip'
        ? { skip: (error) => hooks.logFailure(call, error) }
        : { fail: (error, hasRun) => hooks.createPluginError(call, error, describe(hasRun)) };
    return { timeoutMs: hooks.timeoutMs, onFailure };
  }
}

const describeToolFailure = (name: string, hasRun: boolean) =>
  hasRun
    ? `The tool ${name} may have run, but its result was blocked`
    : `The tool ${name} did not run: it was blocked`;

function readInput(call: ToolCall): JsonObject {
  const input: unknown = call?.input;
  if (typeof input !== 'object' || input === null || Array.isArray(input))
    throw new TypeError('The input of a tool is an object');
  return call.input;
}

const UserPart = z.discriminatedUnion('type', [
  z.object({ type: z.literal('text'), text: z.string() }),
  z.object({ type: z.literal('file'), mediaType: z.string(), data: z.instanceof(Uint8Array) }),
]);
const CallPart = z.object({ id: z.string(), name: z.string(), input: z.string() });
const ToolResult = z.object({
  id: z.string(),
  name: z.string(),
  output: z.string(),
  isError: z.boolean(),
});
const Message = z.discriminatedUnion('role', [
  z.object({
    role: z.literal('user'),
    content: z.union([z.string(), z.array(UserPart)]),
    note: z.string().optional(),
  }),
  z.object({
    role: z.literal('assistant'),
    text: z.string(),
    reasoning: z.string().optional(),
    toolCalls: z.array(CallPart).optional(),
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

/** The call with what a middleware changes of it; most leave most of a call as it is. Throws if a change is unusable. */
function patchCall(call: ModelCall, patch: unknown): ModelCall {
  let changes = patch;
  if (typeof patch === 'object' && patch !== null) {
    const { system, messages, tools } = patch as Partial<Record<keyof ModelCall, unknown>>;
    const isSame = system === call.system && messages === call.messages && tools === call.tools;
    changes = isSame
      ? undefined
      : {
          ...(system !== call.system && { system }),
          ...(messages !== call.messages && { messages }),
          ...(tools !== call.tools && { tools }),
        };
  }
  if (changes === undefined) return call;
  const { data, error } = Patch.safeParse(changes);
  if (error) throw new Error(`its change of a model call is unusable: ${z.prettifyError(error)}`);
  const { system = call.system, messages, tools = call.tools } = data;
  const wellFormed = messages ? toWellFormed(messages) : call.messages;
  if (wellFormed.length === 0) throw new Error('its change of a model call leaves no message');
  return { ...call, system, messages: wellFormed, tools };
}

/** One middleware around one call. */
export interface Wrapping<Input, Output> {
  readonly input: Input;
  /** The middleware's own code. */
  readonly wrap: (next: (input: Input) => Promise<Output>) => Promise<Output>;
  /** The call itself, or the next middleware. */
  readonly next: (input: Input) => Promise<Output>;
  /** How long the middleware may take beside the call. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  readonly onFailure: OnFailure;
}

/** A middleware that fails either fails the call, with the error that `fail` returns, or is skipped and reported. */
type OnFailure =
  | { readonly fail: (error: Error, hasRun: boolean) => Error }
  | { readonly skip: (error: Error) => void };

/** Makes the call through the middleware. */
export const callThrough = <Input, Output>(wrapping: Wrapping<Input, Output>): Promise<Output> =>
  new WrappedCall(wrapping).run();

class WrappedCall<Input, Output> {
  private readonly wrapping: Wrapping<Input, Output>;
  /** The outcome of the call, each time it was made. */
  private readonly made: Promise<Output>[] = [];
  /** What the call itself threw, each time it was made. */
  private readonly callErrors = new Set<unknown>();
  private inProgress = 0;
  private timer: NodeJS.Timeout | undefined;
  private rejectOverdue: (error: Error) => void = () => undefined;
  private isOver = false;

  constructor(wrapping: Wrapping<Input, Output>) {
    this.wrapping = wrapping;
  }

  async run(): Promise<Output> {
    const { wrap } = this.wrapping;
    this.startClock();
    try {
      return await new Promise<Output>((resolve, reject) => {
        this.rejectOverdue = reject;
        wrap((input) => {
          const made = this.next(input);
          // The middleware may never look at it.
          made.catch(() => undefined);
          return made;
        }).then(resolve, reject);
      });
    } catch (error) {
      return await this.endFailed(error);
    } finally {
      this.isOver = true;
      clearTimeout(this.timer);
    }
  }

  private async next(input: Input): Promise<Output> {
    // A middleware that timed out must not make the call a second time.
    if (this.isOver) throw new Error('This middleware failed, and its call is over');
    this.wrapping.signal.throwIfAborted();
    const made = this.callNext(input);
    this.made.push(made);
    return made;
  }

  private async callNext(input: Input): Promise<Output> {
    this.inProgress += 1;
    clearTimeout(this.timer);
    try {
      return await this.wrapping.next(input);
    } catch (error) {
      this.callErrors.add(error);
      throw error;
    } finally {
      this.inProgress -= 1;
      if (this.inProgress === 0 && !this.isOver) this.startClock();
    }
  }

  private async endFailed(thrown: unknown): Promise<Output> {
    const { input, next, signal, onFailure } = this.wrapping;
    this.isOver = true;
    const error = toError(thrown);
    // Nothing of the call may still run once its result is reported; an aborted turn does not wait.
    if (!signal.aborted) await Promise.allSettled(this.made);
    if (error instanceof OracleError || isPause(error)) throw error;
    signal.throwIfAborted();
    // The call failed, and the middleware passed that on.
    if (this.callErrors.has(thrown)) throw thrown;
    if ('fail' in onFailure) throw onFailure.fail(error, this.made.length > 0);
    onFailure.skip(error);
    return this.made.at(-1) ?? next(input);
  }

  private startClock(): void {
    const { timeoutMs } = this.wrapping;
    const expire = () =>
      this.rejectOverdue(new Error(`did not answer within ${timeoutMs / 1000} s`));
    this.timer = setTimeout(expire, timeoutMs);
  }
}
