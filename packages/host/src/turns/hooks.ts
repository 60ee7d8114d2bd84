import { OracleError } from '@sibyl/protocol';
import { withTimeout } from '@sibyl/server-kit';
import type { Logger } from 'pino';

/** When to ask again after a plugin's fault. */
const RETRY_SECONDS = 5;

interface PluginHook {
  readonly plugin: string;
  /** As the contract names it, such as `getRequestTools`. */
  readonly hook: string;
}

export interface HookCall extends PluginHook {
  readonly signal: AbortSignal;
}

/** What a hook gave; one that failed gives nothing. */
export type HookAnswer<T> = { readonly ok: T } | { readonly fault: unknown };

type Work<T> = (signal: AbortSignal) => T | Promise<T>;

/** Calls plugins during turns: a hook that throws or hangs costs only what it would have brought, unless one insists on it. */
export class Hooks {
  constructor(
    private readonly logger: Logger,
    readonly timeoutMs: number,
  ) {}

  /** Throws only if the signal fires. */
  async ask<T>(call: HookCall, work: Work<T>): Promise<HookAnswer<T>> {
    try {
      return { ok: await this.run(call, work) };
    } catch (fault) {
      call.signal.throwIfAborted();
      this.logFault(call, fault);
      return { fault };
    }
  }

  /** As `ask`, but what a hook throws on purpose is its refusal, and passed on. */
  async askForLeave<T>(call: HookCall, work: Work<T>): Promise<HookAnswer<T>> {
    try {
      return { ok: await this.run(call, work) };
    } catch (fault) {
      call.signal.throwIfAborted();
      if (fault instanceof OracleError) throw fault;
      this.logFault(call, fault);
      return { fault };
    }
  }

  /** For what no turn goes on without: a hook that fails refuses, as one does that throws on purpose. */
  async insist<T>(
    call: HookCall,
    work: Work<T>,
    refuse = (fault: unknown) => this.refuse(call, fault),
  ): Promise<T> {
    try {
      return await this.run(call, work);
    } catch (fault) {
      call.signal.throwIfAborted();
      if (fault instanceof OracleError) throw fault;
      throw refuse(fault);
    }
  }

  /** The refusal that stands for a hook's fault, which is the operator's to know. */
  refuse({ plugin, hook }: PluginHook, err: unknown): OracleError {
    this.logger.error({ plugin, hook, err }, 'a plugin failed; its turn is refused');
    return new OracleError('gate_unavailable', { cause: err, retryAfterSeconds: RETRY_SECONDS });
  }

  /** The refusal of a call whose middleware failed: `outcome` says what became of the call, the log says why. */
  block({ plugin, hook }: PluginHook, err: unknown, outcome: string): OracleError {
    this.logger.error({ plugin, hook, err }, 'a plugin failed; the call it wraps is refused');
    return new OracleError('plugin_failed', {
      message: `${outcome} because the plugin ${plugin} failed.`,
      cause: err,
      retryAfterSeconds: RETRY_SECONDS,
    });
  }

  /** For the operator: what a plugin failed to bring, and why. */
  logFault({ plugin, hook }: PluginHook, err: unknown): void {
    this.logger.warn({ plugin, hook, err }, 'a plugin failed; going on without its part');
  }

  private run<T>({ signal }: HookCall, work: Work<T>): Promise<T> {
    const message = `did not answer within ${this.timeoutMs / 1000} s`;
    const answer = withTimeout({ ms: this.timeoutMs, message, signal }, async (both) => work(both));
    return answer.catch((thrown) => {
      throw soundError(thrown);
    });
  }
}

/** What a plugin threw, as an error that can be looked at: it may throw anything, also what throws once more. */
export function soundError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && [thrown.message, thrown.stack, ...Object.values(thrown)])
      return thrown;
  } catch {
    // Nothing of it can be told.
  }
  return new Error(`it threw what is no error (${typeof thrown})`);
}
