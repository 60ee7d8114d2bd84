import type { DatabaseEngine } from '@sibyl/plugin-kit';
import { createTables } from '@sibyl/plugin-kit/host';
import {
  type DatabaseIntrospector,
  type Kysely,
  PostgresAdapter,
  type TableMetadata,
} from 'kysely';
import {
  DEFAULT_MIGRATION_LOCK_TABLE,
  DEFAULT_MIGRATION_TABLE,
  type Migration,
  Migrator,
} from 'kysely/migration';
import type { MigrationPlan } from './database.js';
import { hostTables } from './schema/index.js';
import { StoreError } from './store-errors.js';

/** The host's own schema. */
export const hostSchema: MigrationPlan = {
  author: 'Sibyl',
  tables: hostTables,
  steps: {},
  table: DEFAULT_MIGRATION_TABLE,
  lockTable: DEFAULT_MIGRATION_LOCK_TABLE,
};

const FIRST_STEP = '0000-tables';
const FIRST_STEP_OF_0_1 = '0001-initial';

/** A new database gets the tables of this version at once; the steps from earlier ones are recorded, but not run. */
function buildSteps({ tables: definitions, steps }: MigrationPlan): Record<string, Migration> {
  let isNew = false;
  const initial: Migration = {
    up: async (tables) => {
      isNew = true;
      await createTables(tables, definitions, findEngine(tables));
    },
  };
  const later = Object.entries(steps).map(([name, { up }]): [string, Migration] => [
    name,
    { up: async (tables) => (isNew ? undefined : up(tables)) },
  ]);
  return { [FIRST_STEP]: initial, ...Object.fromEntries(later) };
}

// biome-ignore lint/suspicious/noExplicitAny: migrations are independent of the current schema.
const findEngine = (tables: Kysely<any>): DatabaseEngine =>
  tables.getExecutor().adapter instanceof PostgresAdapter ? 'postgres' : 'sqlite';

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
  const known = Object.keys(buildSteps(plan));
  const unknown = done.find((name) => !known.includes(name));
  if (unknown !== undefined) throw createUnknownStepError(unknown, plan);
  return done.length < known.length;
}

// biome-ignore lint/suspicious/noExplicitAny: as above.
function createMigrator(tables: Kysely<any>, plan: MigrationPlan): Migrator {
  return new Migrator({
    db: tables,
    provider: { getMigrations: async () => buildSteps(plan) },
    migrationTableName: plan.table,
    migrationLockTableName: plan.lockTable,
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

const createUnknownStepError = (step: string, { author }: MigrationPlan) =>
  new StoreError(
    step === FIRST_STEP_OF_0_1
      ? 'This database was written by Sibyl 0.1, whose data this version cannot read; point DATABASE_URL or DATA_DIR at another database (docs/upgrading.md)'
      : `This database was written by a newer ${author} (it has migration ${step}); upgrade ${author}, or point DATABASE_URL or DATA_DIR at another database`,
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
