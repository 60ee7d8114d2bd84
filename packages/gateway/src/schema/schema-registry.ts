import type { GrpcError } from '@sibyl/grpc-client';
import type { Config } from '../config/config.js';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { ChainNode } from '../nodes/chain-node.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Logger } from '../observe/metrics.js';
import {
  type ChainDescriptors,
  fetchDescriptors,
  type NodeVersion,
  readNodeVersion,
} from './descriptor-source.js';
import { computeFingerprint } from './descriptors.js';
import { loadSchema, type Schema } from './schema.js';

/** The schema of a node. */
interface NodeSchema {
  readonly schema: Schema;
  readonly source: ChainDescriptors['source'];
  readonly version: NodeVersion | undefined;
}

/** Nodes that serve the same schema. */
export interface SchemaGroup {
  readonly schema: Schema;
  readonly source: ChainDescriptors['source'];
  readonly nodes: readonly ChainNode[];
}

interface SchemaRegistryOptions {
  readonly nodes: readonly ChainNode[];
  readonly config: Pick<Config, 'schema' | 'compat'>;
  readonly logger: Logger;
}

/** Holds the schema of every node and reloads it when a node runs a new version. */
export class SchemaRegistry {
  /** In the order of the nodes as configured. */
  groups: readonly SchemaGroup[] = [];
  private readonly known = new Map<ChainNode, NodeSchema>();
  private readonly compiled = new Map<string, Schema>();
  private readonly running = new Map<ChainNode, Promise<void>>();

  constructor(private readonly options: SchemaRegistryOptions) {}

  getVersion(node: ChainNode): string | undefined {
    return this.known.get(node)?.version?.version;
  }

  isKnown(node: ChainNode): boolean {
    return this.known.has(node);
  }

  /** Loads the schema of a node if it is new or may have changed; after a failure the known one stays. */
  refresh(node: ChainNode): Promise<void> {
    const running =
      this.running.get(node) ?? this.load(node).catch((error) => this.warn(node, error));
    this.running.set(node, running);
    return running.finally(() => this.running.delete(node));
  }

  private async load(node: ChainNode): Promise<void> {
    const version = await readNodeVersion(node.upstream);
    const before = this.known.get(node);
    if (before && version && before.version?.build === version.build) {
      // Its address may lead to a node of another chain, or back to one of this chain.
      if (before.version.network !== version.network) this.store(node, { ...before, version });
      return;
    }
    const descriptors = await fetchDescriptors(
      node.upstream,
      this.options.config.schema.descriptorsFile,
    );
    const schema = this.compile(descriptors);
    this.store(node, { schema, source: descriptors.source, version });
    if (before?.schema === schema) return;
    this.logSchema(node, schema);
    const warnings = [...(descriptors.refusals ?? []), ...schema.warnings];
    const about = { node: node.name, warnings };
    if (warnings.length > 0) this.options.logger.warn(about, 'the schema is incomplete');
  }

  private store(node: ChainNode, schema: NodeSchema): void {
    this.known.set(node, schema);
    this.excludeOtherChains();
    this.regroup();
  }

  /** Excludes nodes of another chain than the first one's. */
  private excludeOtherChains(): void {
    const versions = this.options.nodes.map((node) => this.known.get(node)?.version);
    const ours = versions.find((version) => version !== undefined)?.network;
    for (const [i, node] of this.options.nodes.entries()) {
      const network = versions[i]?.network ?? ours;
      const wasUsed = node.excludedReason === undefined;
      node.excludedReason =
        network === ours ? undefined : `the node belongs to ${network}, not to ${ours}`;
      // Its replies may be cached.
      if (wasUsed && node.excludedReason !== undefined) node.onReset?.();
    }
  }

  private compile({ files, others, served }: ChainDescriptors): Schema {
    const { schema, compat } = this.options.config;
    const services = served ? [...served].sort() : null;
    const key = `${computeFingerprint([files, others])} ${JSON.stringify(services)}`;
    const { prefix, legacy, maxPageLimit } = schema;
    const found =
      this.compiled.get(key) ??
      loadSchema(files, {
        prefix,
        legacy,
        maxPageLimit,
        others,
        ...(served && { served }),
        ...(compat && { compat }),
      });
    this.compiled.set(key, found);
    return found;
  }

  private regroup(): void {
    const groups = new Map<Schema, { source: ChainDescriptors['source']; nodes: ChainNode[] }>();
    for (const node of this.options.nodes) {
      const found = this.known.get(node);
      if (!found || node.excludedReason) continue;
      const group = groups.get(found.schema) ?? { source: found.source, nodes: [] };
      groups.set(found.schema, { ...group, nodes: [...group.nodes, node] });
    }
    this.groups = [...groups].map(([schema, group]) => ({ schema, ...group }));
    this.evictUnused();
  }

  private logSchema(node: ChainNode, { routes, notices, fingerprint }: Schema): void {
    const about = { node: node.name, routes: routes.length, fingerprint, notices };
    this.options.logger.info(about, `schema of ${node.name}: ${routes.length} routes`);
  }

  private evictUnused(): void {
    const used = new Set([...this.known.values()].map(({ schema }) => schema));
    for (const [key, schema] of this.compiled) if (!used.has(schema)) this.compiled.delete(key);
  }

  private warn(node: ChainNode, error: unknown): void {
    const { message, detail } = error as Partial<GrpcError>;
    node.lastError = detail ?? message ?? String(error);
    this.options.logger.warn({ node: node.name, reason: node.lastError }, 'cannot read the schema');
  }
}

/** Poll rounds between checks of the node versions. */
const ROUNDS = 10;

interface SchemaRefresherOptions {
  readonly pool: NodePool;
  readonly blocks: BlockWatch;
  readonly schemaRegistry: SchemaRegistry;
  readonly pollMs: number;
}

/** Refreshes schemas when a node comes up, and periodically: an upgrade restarts a node. */
export class SchemaRefresher {
  private timer: NodeJS.Timeout | undefined;
  private round = 0;

  constructor(private readonly options: SchemaRefresherOptions) {
    // After a reset the node may run another version.
    for (const event of ['up', 'reset'] as const) {
      options.blocks.on(event, (node) => void options.schemaRegistry.refresh(node));
    }
  }

  /** Resolves after the first refresh of all reachable nodes. */
  async start(): Promise<void> {
    const { pool, schemaRegistry, pollMs } = this.options;
    this.timer = setInterval(() => this.refreshDue(), pollMs);
    await Promise.all(pool.nodes.filter(isUp).map((node) => schemaRegistry.refresh(node)));
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private refreshDue(): void {
    const { pool, schemaRegistry } = this.options;
    this.round += 1;
    const isDue = this.round % ROUNDS === 0;
    for (const node of pool.nodes.filter(isUp)) {
      if (isDue || !schemaRegistry.isKnown(node)) void schemaRegistry.refresh(node);
    }
  }
}

/** Includes excluded nodes: their address may lead to another node by now. */
const isUp = (node: ChainNode) => node.height > 0 && !node.breaker.isOpen;
