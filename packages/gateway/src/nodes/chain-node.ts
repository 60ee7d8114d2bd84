import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import type { UpstreamAddress } from '../config/environment.js';
import type { Upstream, UpstreamCall, UpstreamReply } from '../upstream/upstream.js';
import { CircuitBreaker } from './circuit-breaker.js';

/** How much the newest call counts in the mean latency. */
const NEWEST_SHARE = 0.2;
/** A query that takes longer than this without an answer speaks against the node, not the query. */
const HANGING_MS = 5000;

/** One node and what is known about it. */
export class ChainNode {
  /** Its address without path and credentials; not for clients. */
  readonly name: string;
  readonly breaker = new CircuitBreaker();
  height = 0;
  isCatchingUp = false;
  /** When its height last rose, in milliseconds of `performance.now()`. */
  lastBlockAt = 0;
  latencyMs = 0;
  inFlight = 0;
  lastError: string | undefined;
  /** Why it is never asked, if so. */
  excludedReason: string | undefined;
  private readonly configuredEarliest: number | undefined;
  private missingUpTo = 0;
  private reportedEarliest: number | undefined;
  private foundEarliest: number | undefined;
  private search: Promise<number | undefined> | undefined;

  constructor(
    readonly upstream: Upstream,
    address: UpstreamAddress,
    /** Its place in the configuration, from 1. */
    readonly number: number,
  ) {
    this.name = `${address.url.protocol}//${address.url.host}`;
    this.configuredEarliest = address.from;
  }

  /** Whether it has answered and is not failing. */
  get isUp(): boolean {
    return this.height > 0 && !this.breaker.isOpen && !this.excludedReason;
  }

  /** The first height it has, as far as known: what it tells of itself need not be the whole truth. */
  get earliest(): number | undefined {
    if (this.configuredEarliest !== undefined) return this.configuredEarliest;
    return this.reportedEarliest === undefined
      ? this.foundEarliest
      : Math.max(this.reportedEarliest, this.foundEarliest ?? 0);
  }

  /** Whether it may know the state at a height; before it was asked that is a guess. */
  mayHave(height: number): boolean {
    return height > this.missingUpTo && height >= (this.earliest ?? 0);
  }

  /** Whether it is known to have the state at a height. */
  has(height: number): boolean {
    return this.earliest !== undefined && this.mayHave(height) && height <= this.height;
  }

  async call(method: string, message: Uint8Array, call: UpstreamCall): Promise<UpstreamReply> {
    const startedAt = performance.now();
    this.inFlight += 1;
    try {
      const reply = await this.upstream.call(method, message, call);
      this.breaker.succeeded();
      if (call.height === undefined && reply.height !== undefined) this.raiseHeight(reply.height);
      return reply;
    } catch (error) {
      this.recordError(error as GrpcError, call, performance.now() - startedAt);
      throw error;
    } finally {
      this.inFlight -= 1;
      this.measure(performance.now() - startedAt);
    }
  }

  /** Asks how far it is; true if that is another height than before. */
  async poll(timeoutMs: number): Promise<boolean> {
    const before = this.height;
    try {
      const status = await this.upstream.status(timeoutMs);
      if (status.height !== before) this.lastBlockAt = performance.now();
      this.height = status.height;
      this.reportedEarliest = status.earliest;
      this.isCatchingUp = status.isCatchingUp;
      this.lastError = undefined;
      this.breaker.probed();
    } catch (error) {
      this.lastError = describeError(error);
      this.breaker.failed();
    }
    return this.height !== before;
  }

  /** Finds the first height it has, above one it does not have. */
  async findEarliest(missing: number): Promise<void> {
    this.search ??= findEarliest(this.upstream, missing, this.height).finally(() => {
      this.search = undefined;
    });
    this.foundEarliest = (await this.search) ?? this.foundEarliest;
  }

  private raiseHeight(height: number): void {
    if (height <= this.height) return;
    this.height = height;
    this.lastBlockAt = performance.now();
  }

  private recordError(error: GrpcError, call: UpstreamCall, tookMs: number): void {
    const pruned = parseHeightError(error, call.height, this.height);
    if (pruned?.kind === 'pruned' && call.height !== undefined) {
      this.missingUpTo = Math.max(this.missingUpTo, call.height);
      this.foundEarliest = pruned.earliest ?? this.foundEarliest;
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

/** With what only operators may see. */
function describeError(error: unknown): string {
  const { message, detail } = error as Partial<GrpcError>;
  return detail ?? message ?? String(error);
}

/** A caller may set a short deadline, which the node cannot help. */
function isOwnDeadline(error: GrpcError, tookMs: number): boolean {
  return error.code === GrpcCode.deadlineExceeded && tookMs < HANGING_MS;
}

/** Why a node cannot speak of a height. */
export interface HeightError {
  readonly kind: 'pruned' | 'future';
  /** The first height it has, if it says. */
  readonly earliest: number | undefined;
}

const FUTURE =
  /height in the future|must be less than or equal to the (?:current|head) blockchain/i;
const PRUNED = /pruned|version does not exist|lowest height is|failed to load state at height/i;
const LOWEST = /lowest height is (\d{1,15})/i;

/** Reads a node's refusal of a height; nodes tell it only in words, and one text stands for both cases. */
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

/** Any method will do: a node loads the state of the height before it looks at the query. */
const PROBE = '/cosmos.base.node.v1beta1.Service/Status';
const TIMEOUT_MS = 2000;

/** Bisects for the first height a node has between one it lacks and its latest; undefined if it gives no clear answers. */
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
