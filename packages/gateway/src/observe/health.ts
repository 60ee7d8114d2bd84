import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { SchemaKeeper } from '../schema-source/schema-keeper.js';

export interface HealthParts {
  readonly pool: NodePool;
  readonly keeper: SchemaKeeper;
}

/** How the gateway is, for people and for load balancers: anyone may read it, so it names no node. */
export function summarizeHealth({ pool, keeper }: HealthParts) {
  const states = pool.nodes.map((node) => stateOf(node, pool));
  const count = (wanted: string) => states.filter((state) => state === wanted).length;
  return {
    status: statusOf(count('up'), states.length, keeper.groups.length),
    latestHeight: String(pool.latest),
    nodes: {
      total: states.length,
      up: count('up'),
      lagging: count('lagging'),
      down: count('down'),
    },
    schemas: keeper.groups.length,
    timestamp: new Date().toISOString(),
  };
}

/** How each node is, for operators. */
export function describeNodes({ pool, keeper }: HealthParts) {
  return {
    nodes: pool.nodes.map((node) => nodeHealth(node, { pool, keeper })),
    schemas: keeper.groups.map(({ schema, source, nodes }) => ({
      fingerprint: schema.fingerprint,
      source,
      routes: schema.routes.length,
      nodes: nodes.map(({ name }) => name),
    })),
  };
}

function statusOf(up: number, all: number, schemas: number) {
  if (schemas === 0) return 'starting';
  if (up === 0) return 'down';
  return up < all ? 'degraded' : 'ok';
}

function nodeHealth(node: ChainNode, { pool, keeper }: HealthParts) {
  const { name, upstream, height, earliest, latencyMs, breaker } = node;
  const state = stateOf(node, pool);
  const reason = node.setAside ?? (state === 'up' ? undefined : node.lastFault);
  return {
    number: node.number,
    url: name,
    kind: upstream.kind,
    state,
    ...(reason !== undefined && { reason }),
    height: String(height),
    ...(earliest !== undefined && { earliest: String(earliest) }),
    lag: Math.max(0, pool.latest - height),
    ...(height > 0 && { secondsSinceBlock: rounded((performance.now() - node.blockAt) / 1000) }),
    latencyMs: rounded(latencyMs),
    errorRate: rounded(breaker.errorRate),
    ...(keeper.isKnown(node) && { version: keeper.versionOf(node) }),
  };
}

function stateOf(node: ChainNode, pool: NodePool): 'up' | 'lagging' | 'down' {
  if (!node.isUp) return 'down';
  return pool.isLagging(node) ? 'lagging' : 'up';
}

const rounded = (value: number) => Math.round(value * 100) / 100;
