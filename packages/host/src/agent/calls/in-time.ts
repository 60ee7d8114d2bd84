import { untilAborted } from './until-aborted.js';

/** Node fires timers beyond this at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export interface TimeLimit {
  readonly ms: number;
  /** What is said of work that took longer. */
  readonly fault: string;
  readonly signal: AbortSignal;
}

/** Does work that ends with the signal or when its time is up, even if it does not listen. */
export async function inTime<T>(
  { ms, fault, signal }: TimeLimit,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const overdue = new AbortController();
  const timer = setTimeout(() => overdue.abort(new Error(fault)), Math.min(ms, LONGEST_TIMER_MS));
  const both = AbortSignal.any([signal, overdue.signal]);
  try {
    return await untilAborted(() => work(both), both);
  } finally {
    clearTimeout(timer);
  }
}
