import type { OraclePlugin, OracleUcan } from '@sibyl/plugin-kit';
import type { LoadedPlugin } from '@sibyl/plugin-kit/rules';
import type { Logger } from 'pino';
import type { CallerAllowList } from '../auth/caller-allow-list.js';
import type { DelegationService } from '../auth/delegations.js';
import type { OracleIdentity } from '../auth/oracle-identity.js';
import type { Cluster } from '../bus/cluster.js';
import type { EventBus } from '../bus/event-bus.js';
import type { SessionChanges } from '../bus/session-changes.js';
import type { Config } from '../config/config.js';
import type { FileService } from '../files/file-service.js';
import { DailyCharge, type UploadLimits } from '../files/upload-limits.js';
import { Erasure } from '../own-data/erasure.js';
import { Exports } from '../own-data/exports.js';
import { ImportWriter, type RowImporter } from '../own-data/import-writer.js';
import { Imports, type WriterJob } from '../own-data/imports.js';
import { Retention } from '../own-data/retention.js';
import type { Store } from '../store/store.js';
import type { Turns } from '../turns/turns.js';

/** What serves the routes below `/me`. */
export interface OwnDataServices {
  readonly exports: Exports;
  readonly imports: Imports;
  readonly erasure: Erasure;
  readonly retention: Retention;
}

interface OwnDataNeeds {
  readonly config: Config;
  readonly oracle: OracleIdentity;
  readonly cluster: Cluster;
  readonly store: Store;
  readonly turns: Turns;
  readonly files: FileService;
  readonly uploads: UploadLimits;
  readonly events: EventBus;
  readonly changes: SessionChanges;
  readonly delegations: DelegationService;
  readonly allowList: CallerAllowList;
  readonly ucan: OracleUcan;
  readonly plugins: { readonly plugins: readonly LoadedPlugin[] };
  /** Plugins that are not loaded. */
  readonly unloaded: readonly OraclePlugin[];
  readonly logger: Logger;
}

export function wireOwnData(needs: OwnDataNeeds): OwnDataServices {
  const { config, oracle, cluster, store, logger } = needs;
  const { plugins } = needs.plugins;
  const importers = new Map(plugins.flatMap(listImporters));
  const skippedTables = needs.unloaded.flatMap(({ importedTables = [] }) => importedTables);
  const createWriter = ({ holder, ...job }: WriterJob) =>
    new ImportWriter({
      owner: job.owner,
      oracle,
      store: store.imports.forJob(job),
      rooms: store.rooms,
      maxSessions: config.sessionsPerUser,
      openCharge: () => new DailyCharge(needs.uploads, holder),
      importers,
      skippedTables,
    });
  const imports = new Imports({
    changes: needs.changes,
    store: store.imports,
    files: needs.files,
    uploads: needs.uploads,
    allowList: needs.allowList,
    createWriter,
    disk: store.dataDisk,
    liveness: cluster.liveness,
    dataDir: config.dataDir,
    maxBytes: config.importLimit,
    logger,
  });
  cluster.bus.on('user-erased', ({ did }) => void imports.cancel(did));
  return {
    exports: new Exports({ rows: store.ownerRows, oracle, plugins, files: needs.files }),
    imports,
    retention: new Retention({ ...needs, days: config.retentionDays }),
    erasure: new Erasure({ ...needs, ...cluster, plugins, imports, oracleDid: oracle.did }),
  };
}

/** Plugins import the rows of their tables themselves: only they know their limits. */
function listImporters({ plugin, services }: LoadedPlugin): [string, RowImporter][] {
  return (plugin.importedTables ?? []).map((table) => [
    table,
    async (owner, rows) => {
      const counts = (await plugin.importRows?.({ owner, table, rows }, services)) ?? 0;
      return typeof counts === 'number' ? { stored: counts, refused: 0 } : counts;
    },
  ]);
}
