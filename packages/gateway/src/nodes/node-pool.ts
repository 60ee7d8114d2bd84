import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import { settlesWithin } from '@sibyl/server-kit';
import type { UpstreamCall, UpstreamReply } from '../upstream/upstream.js';
import { type ChainNode, parseHeightError } from './chain-node.js';

/** Share of the remaining time for an attempt while other nodes are left. */
const ATTEMPT_SHARE = 2 / 3;

/** Minimum time left for another attempt. */
const MIN_ATTEMPT_MS = 5;

type Attempt = readonly [node: ChainNode, share: number];

interface NodePoolOptions {
  readonly nodes: readonly ChainNode[];
  /** Blocks a node may be behind and still serve the latest state. */
  readonly maxLag: number;
}

/** Several nodes of one chain, used like one. */
export class NodePool {
  readonly nodes: readonly ChainNode[];
  private readonly maxLag: number;

  constructor({ nodes, maxLag }: NodePoolOptions) {
    this.nodes = nodes;
    this.maxLag = maxLag;
  }

  /** The latest height of all available nodes; 0 if there is none. */
  get latest(): number {
    let best = 0;
    for (const node of this.nodes) if (node.height > best && node.isUp) best = node.height;
    return best;
  }

  /** The first height that any node has, as far as known. */
  get earliest(): number | undefined {
    const known = this.nodes.flatMap((node) => node.earliest ?? []);
    return known.length > 0 ? Math.min(...known) : undefined;
  }

  isLagging(node: ChainNode): boolean {
    return node.isCatchingUp || node.height + this.maxLag < this.latest;
  }

  /** Whether a node is available and at the latest height. */
  hasLatest(node: ChainNode): boolean {
    return node.isUp && !node.isCatchingUp && node.height >= this.latest;
  }

  /** Whether a node is available and may have the state at a height, or that of the latest block. */
  isUsable(node: ChainNode, height: number | undefined): boolean {
    if (!node.isUp) return false;
    if (height === undefined) return !this.isLagging(node);
    return height <= node.height && node.mayHave(height);
  }

  /** Calls the best node, and on failure the next one: queries are safe to retry. */
  async call(
    nodes: readonly ChainNode[],
    method: string,
    message: Uint8Array,
    call: UpstreamCall,
  ): Promise<UpstreamReply> {
    const [only] = nodes;
    const endsAt = performance.now() + call.timeoutMs;
    try {
      return await (only?.isUp && nodes.length === 1
        ? this.callTwice(only, method, message, call)
        : this.callRanked(nodes, method, message, call));
    } catch (error) {
      throw await this.withRange(error, call.height, endsAt);
    }
  }

  /** A lost connection is reopened at once, so a single node gets a second attempt. */
  private async callTwice(
    node: ChainNode,
    method: string,
    message: Uint8Array,
    call: UpstreamCall,
  ): Promise<UpstreamReply> {
    const endsAt = performance.now() + call.timeoutMs;
    try {
      return await node.call(method, message, call);
    } catch (error) {
      const timeoutMs = endsAt - performance.now();
      if (timeoutMs < MIN_ATTEMPT_MS || !this.isRetryable(error, call)) throw error;
      return node.call(method, message, { ...call, timeoutMs });
    }
  }

  private async callRanked(
    nodes: readonly ChainNode[],
    method: string,
    message: Uint8Array,
    call: UpstreamCall,
  ): Promise<UpstreamReply> {
    const endsAt = performance.now() + call.timeoutMs;
    let lastError: unknown;
    for (const [node, share] of this.attempts(nodes, call.height)) {
      try {
        const timeoutMs = Math.max(1, (endsAt - performance.now()) * share);
        return await node.call(method, message, { ...call, timeoutMs });
      } catch (error) {
        lastError = error;
        if (endsAt - performance.now() < MIN_ATTEMPT_MS || !this.isRetryable(error, call)) break;
      }
    }
    throw lastError ?? noNodeAvailable();
  }

  /** Before an error about a pruned height is reported, finds out which heights are available, as far as time permits. */
  private async withRange(
    error: unknown,
    height: number | undefined,
    endsAt: number,
  ): Promise<unknown> {
    const isPruned = parseHeightError(error, height, this.latest)?.kind === 'pruned';
    const leftMs = Math.max(0, endsAt - performance.now());
    if (isPruned) await settlesWithin(leftMs, this.learnRange(height ?? 0));
    return error;
  }

  /** Nodes rarely report their first height, so it is searched on demand. */
  private async learnRange(missing: number): Promise<void> {
    if ((this.earliest ?? 0) > missing) return;
    const able = this.nodes.filter((node) => node.isUp && node.height > missing);
    await Promise.all(able.map((node) => node.findEarliest(missing)));
  }

  /** The nodes to try in order, each with its share of the remaining time. */
  private attempts(nodes: readonly ChainNode[], height: number | undefined): Attempt[] {
    const ranked = this.ranked(nodes, height);
    const [node] = ranked;
    if (node && ranked.length === 1) {
      const attempt: Attempt = [node, 1];
      return [attempt, attempt];
    }
    const last = ranked.length - 1;
    return ranked.map((each, i) => [each, i < last ? ATTEMPT_SHARE : 1]);
  }

  /** Best first: nodes known to have the height, then those that may have it; fast and idle ones before busy ones. */
  private ranked(nodes: readonly ChainNode[], height: number | undefined): ChainNode[] {
    const up = nodes.filter((node) => node.isUp);
    if (up.length < 2) return up;
    const able = height === undefined ? up : up.filter((node) => node.mayHave(height));
    // Nodes are never believed to lack a height without asking one: their address may lead to another by now.
    const usable = able.length > 0 ? able : up;
    const latest = this.latest;
    const rank = (node: ChainNode) =>
      height === undefined ? this.lagRank(node, latest) : archiveRank(node, height);
    return usable.sort((a, b) => rank(a) - rank(b) || estimateCost(a) - estimateCost(b));
  }

  private lagRank(node: ChainNode, latest: number): number {
    if (node.height >= latest) return 0;
    return this.isLagging(node) ? 2 : 1;
  }

  private isRetryable(error: unknown, { height, signal }: UpstreamCall): boolean {
    if (!(error instanceof GrpcError) || signal?.aborted) return false;
    return (
      error.origin === 'transport' || parseHeightError(error, height, this.latest) !== undefined
    );
  }
}

function archiveRank(node: ChainNode, height: number): number {
  if (node.has(height)) return 0;
  return node.height >= height ? 1 : 2;
}

const estimateCost = (node: ChainNode) => (node.latencyMs + 1) * (node.inFlight + 1);

function noNodeAvailable(): GrpcError {
  const text = 'no node is available; see /health';
  return new GrpcError(GrpcCode.unavailable, text, 'transport');
}
