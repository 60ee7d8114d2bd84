import type { UpstreamAddress } from '../config/upstream-url.js';
import { GrpcCode, GrpcError } from '../upstream/grpc-error.js';
import type { Upstream, UpstreamCall, UpstreamReply } from '../upstream/upstream.js';
import { CircuitBreaker } from './circuit-breaker.js';
import { findEarliest } from './find-earliest.js';
import { heightFaultOf } from './height-fault.js';

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
  blockAt = 0;
  latencyMs = 0;
  inFlight = 0;
  lastFault: string | undefined;
  /** Why it is never asked, if so. */
  setAside: string | undefined;
  private readonly keepsFrom: number | undefined;
  private missingUpTo = 0;
  private told: number | undefined;
  private found: number | undefined;
  private finding: Promise<number | undefined> | undefined;

  constructor(
    readonly upstream: Upstream,
    address: UpstreamAddress,
    /** Its place in the configuration, from 1. */
    readonly number: number,
  ) {
    this.name = `${address.url.protocol}//${address.url.host}`;
    this.keepsFrom = address.from;
  }

  /** Whether it has answered and is not failing. */
  get isUp(): boolean {
    return this.height > 0 && !this.breaker.isOpen && !this.setAside;
  }

  /** The first height it has, as far as known: what it tells of itself need not be the whole truth. */
  get earliest(): number | undefined {
    if (this.keepsFrom !== undefined) return this.keepsFrom;
    return this.told === undefined ? this.found : Math.max(this.told, this.found ?? 0);
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
      if (call.height === undefined && reply.height !== undefined) this.rise(reply.height);
      return reply;
    } catch (fault) {
      this.judge(fault as GrpcError, call, performance.now() - startedAt);
      throw fault;
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
      if (status.height !== before) this.blockAt = performance.now();
      this.height = status.height;
      this.told = status.earliest;
      this.isCatchingUp = status.isCatchingUp;
      this.lastFault = undefined;
      this.breaker.probed();
    } catch (fault) {
      this.lastFault = describeFault(fault);
      this.breaker.failed();
    }
    return this.height !== before;
  }

  /** Finds the first height it has, above one it does not have. */
  async findEarliest(missing: number): Promise<void> {
    this.finding ??= findEarliest(this.upstream, missing, this.height).finally(() => {
      this.finding = undefined;
    });
    this.found = (await this.finding) ?? this.found;
  }

  private rise(height: number): void {
    if (height <= this.height) return;
    this.height = height;
    this.blockAt = performance.now();
  }

  private judge(fault: GrpcError, call: UpstreamCall, tookMs: number): void {
    const pruned = heightFaultOf(fault, call.height, this.height);
    if (pruned?.kind === 'pruned' && call.height !== undefined) {
      this.missingUpTo = Math.max(this.missingUpTo, call.height);
      this.found = pruned.earliest ?? this.found;
    }
    if (fault.origin === 'node' || isOwnDeadline(fault, tookMs)) {
      this.breaker.succeeded();
      return;
    }
    this.lastFault = describeFault(fault);
    this.breaker.failed();
  }

  private measure(tookMs: number): void {
    this.latencyMs += (tookMs - this.latencyMs) * (this.latencyMs === 0 ? 1 : NEWEST_SHARE);
  }
}

/** With what only operators may see. */
function describeFault(fault: unknown): string {
  const { message, detail } = fault as Partial<GrpcError>;
  return detail ?? message ?? String(fault);
}

/** A caller may set a short deadline, which the node cannot help. */
function isOwnDeadline(fault: GrpcError, tookMs: number): boolean {
  return fault.code === GrpcCode.deadlineExceeded && tookMs < HANGING_MS;
}
