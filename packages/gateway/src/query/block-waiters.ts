import { setTimeout as sleep } from 'node:timers/promises';
import { GrpcCode } from '@sibyl/grpc-client';
import { Places } from '@sibyl/server-kit';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import { badRequest, QueryError } from './query-error.js';

/** Requests that wait for a block: of one caller, and in total. */
const MAX_PER_CALLER = 100;
const MAX = 1000;
/** Interval between checks while requests wait for a block. */
const CHECK_INTERVAL_MS = 20;
/** Further ahead, a block does not arrive within any timeout. */
const MAX_BLOCKS_AHEAD = 100;
/** Before a node is asked again that has not reached a height yet. */
const RETRY_MS = 20;

/** Receives the function to call if the caller disconnects. */
export type OnGone = (leave: () => void) => void;

interface Waiter {
  readonly height: number;
  /** May be called more than once. */
  settle(isReached: boolean): void;
}

/** The requests that wait for a block. They share the checks for it. */
export class BlockWaiters {
  readonly slots = new CallerSlots({
    max: MAX,
    maxPerCaller: MAX_PER_CALLER,
    callerMessage: `you have reached the limit of ${MAX_PER_CALLER} requests that wait for a block`,
    totalMessage: 'too many requests wait for a block; try again later',
    retrySeconds: 1,
  });
  private readonly waiting = new Set<Waiter>();
  private isChecking = false;
  private isStopped = false;

  constructor(
    readonly pool: NodePool,
    private readonly blocks: BlockWatch,
  ) {
    blocks.on('block', () => this.settleReached());
    blocks.on('stop', () => {
      this.isStopped = true;
      for (const waiter of this.waiting) waiter.settle(false);
    });
  }

  /** Waits until the chain has reached a height; resolves to false if it has not in time, or the caller leaves. */
  waitFor(height: number, timeoutMs: number, onGone: OnGone): Promise<boolean> {
    if (this.isStopped) return Promise.resolve(false);
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const waiter: Waiter = {
      height,
      settle: (isReached) => {
        clearTimeout(timer);
        this.waiting.delete(waiter);
        resolve(isReached);
      },
    };
    const timer = setTimeout(() => waiter.settle(false), timeoutMs);
    this.waiting.add(waiter);
    onGone(() => waiter.settle(false));
    if (this.isChecking) void this.blocks.checkIfDue();
    else void this.checkWhileAwaited();
    return promise;
  }

  private async checkWhileAwaited(): Promise<void> {
    this.isChecking = true;
    while (this.waiting.size > 0) {
      await this.blocks.checkIfDue();
      // A node that is available again changes the height without a new block.
      this.settleReached();
      await sleep(CHECK_INTERVAL_MS);
    }
    this.isChecking = false;
  }

  private settleReached(): void {
    const { latest } = this.pool;
    for (const waiter of this.waiting) if (waiter.height <= latest) waiter.settle(true);
  }
}

export interface MinHeightOptions {
  readonly minHeight: number;
  readonly timeoutMs: number;
  readonly caller: QueryCaller;
  readonly onGone: OnGone | undefined;
}

/** A request for a reply from a height on. It takes a slot once it has to wait. */
export class MinHeightRequest {
  private readonly endsAt: number;
  private isGone = false;
  private leave = () => {};
  private freeSlot: (() => void) | undefined;

  constructor(
    private readonly waiters: BlockWaiters,
    private readonly options: MinHeightOptions,
  ) {
    const { minHeight, timeoutMs, onGone } = options;
    const { latest } = waiters.pool;
    if (latest > 0 && minHeight > latest + MAX_BLOCKS_AHEAD) throw tooFarAhead(latest);
    this.endsAt = performance.now() + timeoutMs;
    onGone?.(() => {
      this.isGone = true;
      this.leave();
    });
  }

  /** For the current step of the request; it replaces the previous one. */
  readonly onGone: OnGone = (leave) => {
    this.leave = leave;
  };

  /** Waits until the chain has reached the height; throws 504 if it has not in time. */
  async waitForBlock(): Promise<void> {
    const { waiters, endsAt } = this;
    const { minHeight } = this.options;
    if (waiters.pool.latest === 0 || waiters.pool.latest >= minHeight) return;
    this.takeSlot();
    const leftMs = Math.max(1, endsAt - performance.now());
    if (!(await waiters.waitFor(minHeight, leftMs, this.onGone))) throw this.notReached();
  }

  /** Pauses after a node has answered from an older block; throws 504 if no time is left. */
  async waitForNode(): Promise<void> {
    if (this.isGone || performance.now() > this.endsAt) throw this.notReached();
    this.takeSlot();
    await sleep(RETRY_MS);
  }

  end(): void {
    this.freeSlot?.();
  }

  private takeSlot(): void {
    this.freeSlot ??= this.waiters.slots.acquire(this.options.caller);
  }

  private notReached(): QueryError {
    const { latest } = this.waiters.pool;
    const text = `block ${this.options.minHeight} has not arrived in time: the latest is ${latest}`;
    return new QueryError(GrpcCode.deadlineExceeded, text, { headers: { 'Retry-After': '1' } });
  }
}

const tooFarAhead = (latest: number) =>
  badRequest(`X-Min-Block-Height is too far in the future: the latest is ${latest}`);

/** Who makes a query. */
export interface QueryCaller {
  readonly name: string;
  /** An address that is limited as well, where names are free to create. */
  readonly address: string | undefined;
}

interface CallerSlotsOptions {
  readonly max: number;
  readonly maxPerCaller: number;
  /** The message for a caller that has taken all of its slots. */
  readonly callerMessage: string;
  /** The message if all slots are taken. */
  readonly totalMessage: string;
  readonly retrySeconds: number;
}

/** Limits what callers do at the same time: each caller, each address, and all of them together. */
export class CallerSlots {
  private readonly places: Places;

  constructor(private readonly options: CallerSlotsOptions) {
    const { max, maxPerCaller } = options;
    this.places = new Places({ max, maxPerOwner: maxPerCaller });
  }

  /** Takes a slot; returns the function that frees it. Throws 429 or 503. */
  acquire({ name, address }: QueryCaller): () => void {
    const { callerMessage, totalMessage } = this.options;
    // Names that are free to create are not known, unless they are addresses.
    const isKnown = address === undefined || address === name;
    const { ok: release, error } = this.places.take({
      owner: name,
      address: address ?? name,
      isKnown,
    });
    switch (error) {
      case undefined:
        return release;
      case 'owner':
        throw this.createError(GrpcCode.resourceExhausted, callerMessage);
      case 'address':
        throw this.createError(GrpcCode.resourceExhausted, ADDRESS_FULL);
      case 'total':
        throw this.createError(GrpcCode.unavailable, totalMessage);
      default:
        return error satisfies never;
    }
  }

  private createError(code: GrpcCode, message: string): QueryError {
    const headers = { 'Retry-After': String(this.options.retrySeconds) };
    return new QueryError(code, message, { headers });
  }
}

const ADDRESS_FULL = 'your network address uses its share of the places; try again later';
