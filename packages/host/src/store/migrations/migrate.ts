import type { DatabaseIntrospector, Kysely, TableMetadata } from 'kysely';
import {
  DEFAULT_MIGRATION_LOCK_TABLE,
  DEFAULT_MIGRATION_TABLE,
  type Migration,
  Migrator,
} from 'kysely/migration';
import { StoreError } from '../store-errors.js';
import { initial } from './0001-initial.js';
import { delegationList } from './0002-delegation-list.js';
import { turnLimits } from './0003-turn-limits.js';
import { frameChunks, runModel } from './0004-run-model.js';
import { feedback, history } from './0005-history.js';
import { activityBySession, approvals } from './0006-approvals.js';
import { ownData } from './0007-own-data.js';
import { embeddings, files, textBytes, uploadHosts, vectorModels } from './0010-files.js';
import { accessKeys } from './0011-access-keys.js';
import { operators, usageByDay } from './0012-operators.js';
import { lookups } from './0015-lookups.js';

/** The migrations of one schema, and the tables that record which of them are done. */
export interface MigrationPlan {
  /** Who wrote the steps, for error messages. */
  readonly author: string;
  /** By name, oldest first. Steps are only ever added. */
  readonly steps: Readonly<Record<string, Migration>>;
  readonly table: string;
  readonly lockTable: string;
}

/** The host's own schema. */
export const hostSchema: MigrationPlan = {
  author: 'Sibyl',
  steps: {
    '0001-initial': initial,
    '0002-delegation-list': delegationList,
    '0003-turn-limits': turnLimits,
    '0004-run-model': runModel,
    '0005-history': history,
    '0006-approvals': approvals,
    '0007-own-data': ownData,
    '0010-files': files,
    '0011-access-keys': accessKeys,
    '0012-operators': operators,
    '0013-embeddings': embeddings,
    '0014-feedback': feedback,
    '0015-lookups': lookups,
    '0016-frame-chunks': frameChunks,
    '0017-text-bytes': textBytes,
    '0018-usage-by-day': usageByDay,
    '0019-upload-hosts': uploadHosts,
    '0020-vector-models': vectorModels,
    '0021-activity-by-session': activityBySession,
  },
  table: DEFAULT_MIGRATION_TABLE,
  lockTable: DEFAULT_MIGRATION_LOCK_TABLE,
};

/** Runs the missing migrations of a schema, and only reads if none is missing. */
// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
export async function migrate(tables: Kysely<any>, plan: MigrationPlan): Promise<void> {
  if (!(await isBehind(tables, plan))) return;
  const { error } = await createMigrator(tables, plan).migrateToLatest();
  if (error !== undefined) throw error;
}

/** Whether a schema lacks migrations; runs none. Throws if it has migrations that the plan lacks. */
// biome-ignore lint/suspicious/noExplicitAny: as above.
export async function isBehind(tables: Kysely<any>, plan: MigrationPlan): Promise<boolean> {
  const done = await readDone(tables, plan);
  const unknown = done.find((name) => !(name in plan.steps));
  if (unknown !== undefined) throw createNewerDatabaseError(unknown, plan);
  return done.length < Object.keys(plan.steps).length;
}

// biome-ignore lint/suspicious/noExplicitAny: as above.
function createMigrator(tables: Kysely<any>, { steps, table, lockTable }: MigrationPlan): Migrator {
  return new Migrator({
    db: tables,
    provider: { getMigrations: async () => ({ ...steps }) },
    migrationTableName: table,
    migrationLockTableName: lockTable,
  });
}

async function readDone(
  // biome-ignore lint/suspicious/noExplicitAny: reads Kysely's own table, which is not in the schema.
  tables: Kysely<any>,
  { table }: MigrationPlan,
): Promise<readonly string[]> {
  const known = await tables.introspection.getTables({ withInternalKyselyTables: true });
  if (!known.some(({ name }) => name === table)) return [];
  // Not the names alone, which are in an index: a damaged table has to be noticed.
  const done = await tables.selectFrom(table).selectAll().execute();
  return done.map((row) => String(row.name));
}

const createNewerDatabaseError = (step: string, { author }: MigrationPlan) =>
  new StoreError(
    `This database was written by a newer ${author} (it has migration ${step}); upgrade ${author}, or point DATABASE_URL or DATA_DIR at another database`,
  );

/** The names of all tables are what migrations ask for; Kysely itself reads every column as well, for each plugin. */
export class TableNames implements DatabaseIntrospector {
  constructor(private readonly read: () => Promise<readonly string[]>) {}

  async getSchemas(): Promise<[]> {
    return [];
  }

  async getTables(): Promise<TableMetadata[]> {
    const names = await this.read();
    return names.map((name) => ({ name, isView: false, isForeign: false, columns: [] }));
  }

  async getMetadata(): Promise<{ tables: TableMetadata[] }> {
    return { tables: await this.getTables() };
  }
}
