import type { ChainNode } from '../nodes/chain-node.js';
import type { Match } from '../schema.js';
import type { SchemaGroup } from '../schema-source/schema-keeper.js';

export interface Found {
  readonly group: SchemaGroup;
  readonly match: Match;
}

/** Finds the route of a path in the schema of nodes that can answer; of several schemas the best match counts. */
export function findRoute(
  groups: readonly SchemaGroup[],
  { method, path, height }: { method: string; path: string; height: number | undefined },
): Found | undefined {
  const able = (node: ChainNode) => node.isUp && (height === undefined || node.mayHave(height));
  let best: Found | undefined;
  let bestRank = Number.POSITIVE_INFINITY;
  for (const group of groups) {
    const match = group.schema.match(method, path);
    const rank = rankOf(match) + (groups.length === 1 || group.nodes.some(able) ? 0 : 0.5);
    if (rank < bestRank) {
      best = { group, match };
      bestRank = rank;
    }
  }
  return best;
}

function rankOf(match: Match): number {
  if (match.kind === 'route') return match.route.isServed ? 0 : 1;
  return match.kind === 'method_not_allowed' ? 2 : 3;
}
