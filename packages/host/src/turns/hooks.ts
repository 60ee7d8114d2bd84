import { OracleError } from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { Metrics } from '../observability/metrics.js';
import { withSpan } from '../observability/spans.js';

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

type Work<T> = (signal: AbortSignal) => T | Promise<T>;

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
    const message = `did not answer within ${this.timeoutMs / 1000} s`;
    const startedAt = performance.now();
    const span = { kind: 'hook', name: `${plugin} ${hook}`, facts: { plugin, hook } } as const;
    try {
      return await withSpan(span, () =>
        withTimeout({ ms: this.timeoutMs, message, signal, isShortLived: true }, async (both) =>
          work(both),
        ),
      );
    } catch (thrown) {
      throw toError(thrown);
    } finally {
      const seconds = (performance.now() - startedAt) / 1000;
      this.metrics?.observe('sibyl_hook_seconds', { plugin, hook }, seconds);
    }
  }
}

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
