import type { ReplyCache } from '../cache/reply-cache.js';
import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Gauge } from './metrics.js';

interface GaugeParts {
  readonly pool: NodePool;
  readonly cache: ReplyCache;
  readonly watchers: number;
  readonly labelNode: (node: ChainNode) => string;
}

/** What is measured at the moment it is asked for. */
export function gaugesOf({ pool, cache, watchers, labelNode }: GaugeParts): Gauge[] {
  const { rss, heapUsed } = process.memoryUsage();
  return [
    gauge('sibyl_gateway_latest_height', 'Latest height of the chain', pool.latest),
    ...nodeGauges(pool, labelNode),
    gauge('sibyl_gateway_cache_bytes', 'Memory of cached replies', cache.bytes),
    gauge('sibyl_gateway_cache_entries', 'Cached replies', cache.size),
    gauge('sibyl_gateway_watchers', 'Clients that watch', watchers),
    gauge('process_resident_memory_bytes', 'Resident memory', rss),
    gauge('nodejs_heap_used_bytes', 'Heap in use', heapUsed),
  ];
}

function gauge(name: string, help: string, value: number): Gauge {
  return { name, help, values: [{ labels: {}, value }] };
}

function nodeGauges({ nodes, latest }: NodePool, labelNode: GaugeParts['labelNode']): Gauge[] {
  const perNode = (name: string, help: string, measure: (node: ChainNode) => number): Gauge => ({
    name: `sibyl_gateway_node_${name}`,
    help,
    values: nodes.map((node) => ({ labels: { node: labelNode(node) }, value: measure(node) })),
  });
  return [
    perNode('up', 'Whether a node is asked', ({ isUp }) => Number(isUp)),
    perNode('height', 'Height of a node', ({ height }) => height),
    perNode('lag', 'Blocks a node is behind', ({ height }) => Math.max(0, latest - height)),
    perNode('calls', 'Calls under way', ({ inFlight }) => inFlight),
    perNode('error_rate', 'Share of recent calls that failed', ({ breaker }) => breaker.errorRate),
    perNode('latency_seconds', 'Mean time of a call', ({ latencyMs }) => latencyMs / 1000),
  ];
}
