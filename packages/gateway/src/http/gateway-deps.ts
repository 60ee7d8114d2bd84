import type { ByteBudget } from '@sibyl/server-kit';
import type { Admission } from '../auth/admission.js';
import type { Config } from '../config/config.js';
import type { BlockWatch } from '../nodes/block-watch.js';
import type { NodePool } from '../nodes/node-pool.js';
import type { Logger, Metrics } from '../observe/metrics.js';
import type { QueryParser } from '../query/query-parser.js';
import type { QueryService } from '../query/query-service.js';
import type { SchemaRegistry } from '../schema/schema-registry.js';
import type { Watches } from './watches.js';

/** The dependencies of request handlers. */
export interface GatewayDeps {
  readonly config: Config;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly pool: NodePool;
  readonly blocks: BlockWatch;
  readonly schemaRegistry: SchemaRegistry;
  readonly queryParser: QueryParser;
  readonly queryService: QueryService;
  readonly admission: Admission;
  readonly watches: Watches;
  /** The memory of request bodies that are being read. */
  readonly incoming: ByteBudget;
  /** The memory of replies that clients have not received yet. */
  readonly outgoing: ByteBudget;
}
