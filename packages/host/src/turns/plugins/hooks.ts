import { OracleError } from '@sibyl/protocol';
import { TimeoutError } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Metrics } from '../../observability/metrics.js';
import { startSpan, toErrorCode } from '../../observability/spans.js';

/** Retry-After when a plugin failed. */
const RETRY_SECONDS = 5;

interface PluginHook {
  readonly plugin: string;
  /** As the contract names it, such as `getRequestTools`. */
  readonly hook: string;
}

export interface HookCall extends PluginHook {
  /** Of the turn; unset if the hook ends by itself or by its time limit. */
  readonly signal?: AbortSignal;
}

/** The result of a hook, or the error of one that failed. */
export type HookResult<T> = { readonly ok: T } | { readonly fault: unknown };

type Work<T> = (limit: HookLimit) => T | Promise<T>;

/** Calls plugins during turns. A hook that throws or times out contributes nothing; a required one refuses the turn. */
export class Hooks {
  constructor(
    private readonly logger: Logger,
    readonly timeoutMs: number,
    private readonly metrics?: Metrics,
  ) {}

  /** Throws only if the signal fires. */
  async callOptional<T>(call: HookCall, work: Work<T>): Promise<HookResult<T>> {
    try {
      return { ok: await this.run(call, work) };
    } catch (fault) {
      call.signal?.throwIfAborted();
      this.logFailure(call, fault);
      return { fault };
    }
  }

  /** Like `callOptional`, but an OracleError of the hook is its refusal and is rethrown. */
  async callGuard<T>(call: HookCall, work: Work<T>): Promise<HookResult<T>> {
    try {
      return { ok: await this.run(call, work) };
    } catch (fault) {
      call.signal?.throwIfAborted();
      if (fault instanceof OracleError) throw fault;
      this.logFailure(call, fault);
      return { fault };
    }
  }

  /** Fails closed: a hook that fails refuses the turn, like one that throws an OracleError. */
  async callRequired<T>(
    call: HookCall,
    work: Work<T>,
    createGateError = (fault: unknown) => this.refuse(call, fault),
  ): Promise<T> {
    try {
      return await this.run(call, work);
    } catch (fault) {
      call.signal?.throwIfAborted();
      if (fault instanceof OracleError) throw fault;
      throw createGateError(fault);
    }
  }

  /** Refuses a turn because a hook failed; only the log contains the reason. */
  refuse({ plugin, hook }: PluginHook, err: unknown): OracleError {
    this.logger.error({ plugin, hook, err }, 'plugin failed; turn refused');
    return new OracleError('gate_unavailable', { cause: err, retryAfterSeconds: RETRY_SECONDS });
  }

  /** Fails a call because its middleware failed; `outcome` is what happened to the call, the log contains the reason. */
  createPluginError({ plugin, hook }: PluginHook, err: unknown, outcome: string): OracleError {
    this.logger.error({ plugin, hook, err }, 'plugin failed; call refused');
    return new OracleError('plugin_failed', {
      message: `${outcome} because the plugin ${plugin} failed.`,
      cause: err,
      retryAfterSeconds: RETRY_SECONDS,
    });
  }

  /** Logs that a plugin contributes nothing, and why. */
  logFailure({ plugin, hook }: PluginHook, err: unknown): void {
    this.logger.warn({ plugin, hook, err }, 'plugin failed; continuing without its contribution');
  }

  private async run<T>({ plugin, hook, signal }: HookCall, work: Work<T>): Promise<T> {
    const startedAt = performance.now();
    const name = `${plugin} ${hook}`;
    const span = startSpan({ kind: 'hook', name, facts: { plugin, hook } });
    const limit = new HookLimit(this.timeoutMs, signal);
    let error: Error | undefined;
    try {
      return await (span ? span.run(() => limit.run(work)) : limit.run(work));
    } catch (thrown) {
      error = toError(thrown);
      throw error;
    } finally {
      span?.end({ error: error && toErrorCode(error) });
      const seconds = (performance.now() - startedAt) / 1000;
      this.metrics?.observe('sibyl_hook_seconds', { plugin, hook }, seconds);
    }
  }
}

/**
 * How long a hook may take: until its time limit, or until its turn ends. A turn calls many hooks, and most return at once
 * and ignore the signal: timer and signal are created only for the others.
 */
export class HookLimit {
  private controller: AbortController | undefined;

  constructor(
    private readonly ms: number,
    private readonly turn: AbortSignal | undefined,
  ) {}

  /** Aborted by the time limit and, even if the hook has returned, by the end of the turn. */
  get signal(): AbortSignal {
    this.controller ??= this.createController();
    return this.controller.signal;
  }

  run<T>(work: Work<T>): T | Promise<T> {
    const { ms, turn } = this;
    turn?.throwIfAborted();
    const result = work(this);
    if (!isPromise(result)) return result;
    return new Promise((resolve, reject) => {
      const onAbort = () => reject(turn?.reason);
      const timer = setTimeout(() => {
        const error = new TimeoutError(`did not answer within ${ms / 1000} s`);
        this.controller ??= new AbortController();
        this.controller.abort(error);
        reject(error);
      }, ms);
      if (turn?.aborted) onAbort();
      else turn?.addEventListener('abort', onAbort, { once: true });
      const end = () => {
        clearTimeout(timer);
        turn?.removeEventListener('abort', onAbort);
      };
      Promise.resolve(result).finally(end).then(resolve, reject);
    });
  }

  private createController(): AbortController {
    const { turn } = this;
    const controller = new AbortController();
    const onAbort = () => controller.abort(turn?.reason);
    if (turn?.aborted) onAbort();
    else turn?.addEventListener('abort', onAbort, { once: true });
    return controller;
  }
}

const LIMIT = Symbol('limit');

/** The same for all contexts: V8 stores an object with another getter than others as a dictionary, which takes 2 KB. */
const LAZY_SIGNAL = {
  enumerable: true,
  configurable: true,
  get(this: { readonly [LIMIT]: HookLimit }) {
    return this[LIMIT].signal;
  },
};

/** The context of a hook: its signal is created when it is used. */
export function withSignal<C extends object>(
  context: C,
  limit: HookLimit,
): C & { readonly signal: AbortSignal } {
  const limited: object = { ...context, [LIMIT]: limit };
  return Object.defineProperty(limited, 'signal', LAZY_SIGNAL) as ReturnType<typeof withSignal<C>>;
}

export const isPromise = <T>(value: T | Promise<T>): value is Promise<T> =>
  typeof (value as Partial<Promise<T>> | undefined)?.then === 'function';

/** Returns an error that can be inspected: a plugin may throw anything, even an object whose getters throw. */
export function toError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && [thrown.message, thrown.stack, ...Object.values(thrown)])
      return thrown;
  } catch {
    // Its properties cannot be read.
  }
  return new Error(`it threw a value that is not an error (${typeof thrown})`);
}
