import { GrpcCode, GrpcError } from '@sibyl/grpc-client';
import type { UpstreamCall, UpstreamReply } from '../upstream/upstream.js';
import { type ChainNode, parseHeightError } from './chain-node.js';

/** How much of the time that is left one attempt may take while another node could be asked. */
const ATTEMPT_SHARE = 2 / 3;

/** With less time than this left, another attempt is not worth it. */
const MIN_ATTEMPT_MS = 5;

type Attempt = readonly [node: ChainNode, share: number];

interface NodePoolOptions {
  readonly nodes: readonly ChainNode[];
  /** Blocks a node may be behind and still be asked for the latest. */
  readonly maxLag: number;
}

/** Several nodes of one chain, asked as if they were one. */
export class NodePool {
  readonly nodes: readonly ChainNode[];
  private readonly maxLag: number;

  constructor({ nodes, maxLag }: NodePoolOptions) {
    this.nodes = nodes;
    this.maxLag = maxLag;
  }

  /** The latest height of any node that answers; 0 before the first has. */
  get latest(): number {
    return this.nodes.reduce((best, node) => (node.isUp ? Math.max(best, node.height) : best), 0);
  }

  /** The first height that some node has, if every node says. */
  get earliest(): number | undefined {
    const known = this.nodes.flatMap((node) => node.earliest ?? []);
    return known.length > 0 ? Math.min(...known) : undefined;
  }

  isLagging(node: ChainNode): boolean {
    return node.isCatchingUp || node.height + this.maxLag < this.latest;
  }

  /** Asks the best of the nodes given, and the next one where that one fails: queries change nothing. */
  async call(
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
    throw await this.withRange(lastError ?? noNodeAvailable(nodes, call.height), call.height);
  }

  /** A fault that is about the heights there are is told with them known. */
  private async withRange(error: unknown, height: number | undefined): Promise<unknown> {
    const isPruned = parseHeightError(error, height, this.latest)?.kind === 'pruned';
    if (isPruned) await this.learnRange(height ?? 0);
    return error;
  }

  /** Nodes rarely say from which height on they can be asked, so that is found out when it matters. */
  private async learnRange(missing: number): Promise<void> {
    if ((this.earliest ?? 0) > missing) return;
    const able = this.nodes.filter((node) => node.isUp && node.height > missing);
    await Promise.all(able.map((node) => node.findEarliest(missing)));
  }

  /** Whom to ask, one after the other, and the share of the time left that each may take. */
  private attempts(nodes: readonly ChainNode[], height: number | undefined): Attempt[] {
    const ranked = this.ranked(nodes, height);
    const [node] = ranked;
    // A broken connection is made anew at once, so a node alone deserves a second attempt.
    if (node && ranked.length === 1)
      return [
        [node, 1],
        [node, 1],
      ];
    const last = ranked.length - 1;
    return ranked.map((each, i) => [each, i < last ? ATTEMPT_SHARE : 1]);
  }

  /** The best first: those that surely can answer, then those that may, quick and idle ones before busy ones. */
  private ranked(nodes: readonly ChainNode[], height: number | undefined): ChainNode[] {
    const usable = nodes.filter(
      (node) => node.isUp && (height === undefined || node.mayHave(height)),
    );
    if (usable.length < 2) return usable;
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

function noNodeAvailable(nodes: readonly ChainNode[], height: number | undefined): GrpcError {
  if (height !== undefined && nodes.some((node) => node.isUp)) {
    return new GrpcError(GrpcCode.invalidArgument, `height ${height} was pruned from every node`);
  }
  const text = 'no node can be asked now; see /health';
  return new GrpcError(GrpcCode.unavailable, text, 'transport');
}
