import { OracleError } from '@sibyl/protocol';
import type { Logger } from 'pino';
import { inTime } from '../../agent/calls/in-time.js';
import { soundError } from './sound-error.js';

export interface HookCall {
  readonly plugin: string;
  /** As the contract names it, such as `getRequestTools`. */
  readonly hook: string;
  readonly signal: AbortSignal;
}

/** What a hook gave; one that failed gives nothing. */
export type HookAnswer<T> = { readonly ok: T } | { readonly fault: unknown };

type Work<T> = (signal: AbortSignal) => T | Promise<T>;

/** Calls plugins during turns: a hook that throws or hangs costs only what it would have brought. */
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

  /** For the operator: what a plugin failed to bring, and why. */
  logFault({ plugin, hook }: Pick<HookCall, 'plugin' | 'hook'>, err: unknown): void {
    this.logger.warn({ plugin, hook, err }, 'a plugin failed; going on without its part');
  }

  private run<T>({ signal }: HookCall, work: Work<T>): Promise<T> {
    const fault = `did not answer within ${this.timeoutMs / 1000} s`;
    const answer = inTime({ ms: this.timeoutMs, fault, signal }, async (both) => work(both));
    return answer.catch((thrown) => {
      throw soundError(thrown);
    });
  }
}
