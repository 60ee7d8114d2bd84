import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import type { UpstreamAddress } from '../config/environment.js';
import type { Upstream, UpstreamCall, UpstreamReply } from '../upstream/upstream.js';
import { CircuitBreaker } from './circuit-breaker.js';

/** Weight of the latest call in the mean latency. */
const NEWEST_SHARE = 0.2;
/** Calls that time out after more than this count against the node. */
const HANGING_MS = 5000;
/** How long a refused height is remembered: behind a proxy, the next call may reach another node. */
const HISTORY_LIFE_MS = 5000;
/** A fall of more blocks is a reset; a smaller one must last, since nodes behind one proxy differ by some blocks. */
const RESET_BLOCKS = 10;
const RESET_POLLS = 3;

/** One node and its state. */
export class ChainNode {
  /** The address without path and credentials; not sent to clients. */
  readonly name: string;
  readonly breaker = new CircuitBreaker();
  height = 0;
  isCatchingUp = false;
  /** When the height last changed, in milliseconds of `performance.now()`. */
  lastBlockAt = 0;
  latencyMs = 0;
  inFlight = 0;
  lastError: string | undefined;
  /** Why the node is not used, if it is excluded. */
  excludedReason: string | undefined;
  /** Called when the chain of the node was reset, or its address leads to another one. */
  onReset: (() => void) | undefined;
  private readonly configuredEarliest: number | undefined;
  private reportedEarliest: number | undefined;
  private readonly refused = new RefusedHeights();
  private lowerPolls = 0;
  private search: Promise<number | undefined> | undefined;

  constructor(
    readonly upstream: Upstream,
    address: UpstreamAddress,
    /** The position in the configuration, from 1. */
    readonly number: number,
  ) {
    this.name = `${address.url.protocol}//${address.url.host}`;
    this.configuredEarliest = address.from;
    upstream.onConnected = () => this.refused.clear();
  }

  /** Whether the node has reported a height and is not failing. */
  get isUp(): boolean {
    return this.height > 0 && !this.breaker.isOpen && !this.excludedReason;
  }

  /** The first height the node has, as far as known: the reported one may be too low. */
  get earliest(): number | undefined {
    if (this.configuredEarliest !== undefined) return this.configuredEarliest;
    const { earliest: found } = this.refused;
    return this.reportedEarliest === undefined
      ? found
      : Math.max(this.reportedEarliest, found ?? 0);
  }

  /** Whether the node may have the state at a height. */
  mayHave(height: number): boolean {
    return height > this.refused.upTo && height >= (this.earliest ?? 0);
  }

  /** Whether the node is known to have the state at a height. */
  has(height: number): boolean {
    return this.earliest !== undefined && this.mayHave(height) && height <= this.height;
  }

  async call(method: string, message: Uint8Array, call: UpstreamCall): Promise<UpstreamReply> {
    const startedAt = performance.now();
    const before = this.height;
    this.inFlight += 1;
    try {
      const reply = await this.upstream.call(method, message, call);
      this.breaker.succeeded();
      if (call.height === undefined && reply.height !== undefined)
        this.applyHeight(reply.height, before);
      return reply;
    } catch (error) {
      this.recordError(error as GrpcError, call, performance.now() - startedAt);
      throw error;
    } finally {
      this.inFlight -= 1;
      this.measure(performance.now() - startedAt);
    }
  }

  /** Polls the state of the node. */
  async poll(timeoutMs: number): Promise<void> {
    const before = this.height;
    try {
      const status = await this.upstream.status(timeoutMs);
      this.reportedEarliest = status.earliest;
      this.isCatchingUp = status.isCatchingUp;
      this.lastError = undefined;
      this.breaker.probed();
      this.lowerPolls = status.height < before ? this.lowerPolls + 1 : 0;
      this.applyHeight(status.height, before);
    } catch (error) {
      this.lastError = describeError(error);
      this.breaker.failed();
    }
  }

  /** Reads the height alone, by a single call; `poll` notices failures. */
  async readHeight(timeoutMs: number): Promise<void> {
    const height = await this.upstream.readHeight(timeoutMs).catch(() => 0);
    this.raiseHeight(height);
  }

  /** Searches the first height the node has, above one it lacks. */
  async findEarliest(missing: number): Promise<void> {
    if (this.configuredEarliest !== undefined) return;
    this.search ??= findEarliest(this.upstream, missing, this.height).finally(() => {
      this.search = undefined;
    });
    const earliest = await this.search;
    if (earliest !== undefined) this.refused.learn(missing, earliest);
  }

  raiseHeight(height: number): void {
    if (height <= this.height) return;
    this.height = height;
    this.lastBlockAt = performance.now();
  }

  /**
   * Applies a height that the node reports as its latest; if it fell for good, the chain was reset. It is compared with
   * the height before the call: a node reads its height first, so that a slow reply shows an older one.
   */
  private applyHeight(height: number, before: number): void {
    this.raiseHeight(height);
    const isReset = before - height > RESET_BLOCKS || this.lowerPolls >= RESET_POLLS;
    if (!isReset) return;
    this.lowerPolls = 0;
    this.height = height;
    this.lastBlockAt = performance.now();
    this.refused.clear();
    this.onReset?.();
  }

  private recordError(error: GrpcError, call: UpstreamCall, tookMs: number): void {
    // A canceled call says nothing about the node.
    if (call.signal?.aborted) return;
    const pruned = parseHeightError(error, call.height, this.height);
    if (pruned?.kind === 'pruned' && call.height !== undefined) {
      if (this.configuredEarliest === undefined) this.refused.learn(call.height, pruned.earliest);
    }
    if (error.origin === 'node' || isOwnDeadline(error, tookMs)) {
      this.breaker.succeeded();
      return;
    }
    this.lastError = describeError(error);
    this.breaker.failed();
  }

  private measure(tookMs: number): void {
    this.latencyMs += (tookMs - this.latencyMs) * (this.latencyMs === 0 ? 1 : NEWEST_SHARE);
  }
}

/** The heights a node refused lately, because it no longer keeps them. */
class RefusedHeights {
  private height = 0;
  private found: number | undefined;
  private expiresAt = 0;

  /** The highest refused one; 0 if there is none. */
  get upTo(): number {
    return this.isExpired ? 0 : this.height;
  }

  /** The first height the node has, if it is known. */
  get earliest(): number | undefined {
    return this.isExpired ? undefined : this.found;
  }

  learn(height: number, earliest: number | undefined): void {
    this.height = Math.max(this.upTo, height);
    this.found = earliest ?? this.earliest;
    this.expiresAt = performance.now() + HISTORY_LIFE_MS;
  }

  clear(): void {
    this.expiresAt = 0;
  }

  private get isExpired(): boolean {
    return performance.now() >= this.expiresAt;
  }
}

/** Includes details for operators only. */
function describeError(error: unknown): string {
  const { message, detail } = error as Partial<GrpcError>;
  return detail ?? message ?? String(error);
}

/** Whether the caller's own deadline was short, so that the node is not to blame. */
function isOwnDeadline(error: GrpcError, tookMs: number): boolean {
  return error.code === GrpcCode.deadlineExceeded && tookMs < HANGING_MS;
}

/** Why a node cannot serve a height. */
export interface HeightError {
  readonly kind: 'pruned' | 'future';
  /** The first height the node has, if the error contains it. */
  readonly earliest: number | undefined;
}

const FUTURE =
  /height in the future|must be less than or equal to the (?:current|head) blockchain/i;
const PRUNED = /pruned|version does not exist|lowest height is|failed to load state at height/i;
const LOWEST = /lowest height is (\d{1,15})/i;

/** Recognizes a node's error about a height by its text, which can be the same for both cases. */
export function parseHeightError(
  error: unknown,
  requested: number | undefined,
  latest: number,
): HeightError | undefined {
  if (!(error instanceof GrpcError) || error.origin !== 'node') return undefined;
  if (requested === undefined) return undefined;
  if (FUTURE.test(error.message)) return { kind: 'future', earliest: undefined };
  if (!PRUNED.test(error.message)) return undefined;
  if (requested > latest) return { kind: 'future', earliest: undefined };
  const lowest = LOWEST.exec(error.message)?.[1];
  return { kind: 'pruned', earliest: lowest === undefined ? undefined : Number(lowest) };
}

/** Any method works: a node loads the state of the height before it handles the query. */
const PROBE = '/cosmos.base.node.v1beta1.Service/Status';
const TIMEOUT_MS = 2000;

/** Bisects for the first height a node has between one it lacks and its latest; undefined if the node fails. */
export async function findEarliest(
  upstream: Upstream,
  missing: number,
  latest: number,
): Promise<number | undefined> {
  let lacks = missing;
  let has = latest;
  try {
    while (has - lacks > 1) {
      const middle = Math.floor((lacks + has) / 2);
      if (await hasHeight(upstream, middle, latest)) has = middle;
      else lacks = middle;
    }
    return has;
  } catch {
    return undefined;
  }
}

async function hasHeight(upstream: Upstream, height: number, latest: number): Promise<boolean> {
  try {
    await upstream.call(PROBE, new Uint8Array(), { height, timeoutMs: TIMEOUT_MS });
    return true;
  } catch (error) {
    if (parseHeightError(error, height, latest)) return false;
    throw error;
  }
}
