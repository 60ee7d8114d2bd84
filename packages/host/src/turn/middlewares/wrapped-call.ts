import type { JsonObject } from '@sibyl/protocol';
import { OracleError } from '@sibyl/protocol';
import { soundError } from '../hooks/sound-error.js';

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
export type OnFailure =
  | { readonly fail: (fault: Error, hasRun: boolean) => Error }
  | { readonly skip: (fault: Error) => void };

/** Makes the call through the middleware. */
export function callThrough(wrapping: Wrapping): Promise<unknown> {
  return new WrappedCall(wrapping).run();
}

class WrappedCall {
  readonly #wrapping: Wrapping;
  readonly #overdue = Promise.withResolvers<never>();
  /** The outcome of the call, each time it was made. */
  readonly #made: Promise<unknown>[] = [];
  /** What the call itself threw, each time it was made. */
  readonly #callFaults = new Set<unknown>();
  #underWay = 0;
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(wrapping: Wrapping) {
    this.#wrapping = wrapping;
  }

  async run(): Promise<unknown> {
    const { wrap } = this.#wrapping;
    this.#startClock();
    try {
      return await Promise.race([wrap((input) => this.#next(input)), this.#overdue.promise]);
    } catch (fault) {
      return await this.#endFailed(fault);
    } finally {
      this.#isOver = true;
      clearTimeout(this.#timer);
    }
  }

  #next(input: JsonObject): Promise<unknown> {
    const made = this.#make(input);
    // The middleware may never look at it.
    made.catch(() => undefined);
    return made;
  }

  async #make(input: JsonObject): Promise<unknown> {
    // A middleware that was given up must not make the call a second time.
    if (this.#isOver) throw new Error('This middleware failed, and its call is over');
    this.#wrapping.signal.throwIfAborted();
    if (typeof input !== 'object' || input === null || Array.isArray(input))
      throw new TypeError('The input of a tool is an object');
    this.#underWay += 1;
    clearTimeout(this.#timer);
    const made = this.#wrapping.next(input).finally(() => {
      this.#underWay -= 1;
      if (this.#underWay === 0 && !this.#isOver) this.#startClock();
    });
    made.catch((fault) => this.#callFaults.add(fault));
    this.#made.push(made);
    return made;
  }

  async #endFailed(fault: unknown): Promise<unknown> {
    const { input, next, signal, onFailure } = this.#wrapping;
    this.#isOver = true;
    const error = soundError(fault);
    // Nothing of the call may still run once its result is reported; an aborted turn does not wait.
    if (!signal.aborted) await Promise.allSettled(this.#made);
    if (error instanceof OracleError) throw error;
    signal.throwIfAborted();
    // The call failed, and the middleware passed that on.
    if (this.#callFaults.has(fault)) throw fault;
    if ('fail' in onFailure) throw onFailure.fail(error, this.#made.length > 0);
    onFailure.skip(error);
    return this.#made.at(-1) ?? next(input);
  }

  #startClock(): void {
    const { timeoutMs } = this.#wrapping;
    const fault = new Error(`did not answer within ${timeoutMs / 1000} s`);
    this.#timer = setTimeout(() => this.#overdue.reject(fault), timeoutMs);
  }
}
