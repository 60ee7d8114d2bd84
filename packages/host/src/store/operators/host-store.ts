import type { HostReport } from '@sibyl/protocol';
import type { StoreContext } from '../database.js';

/** How long a host that ended without a report stays in the list. */
const KEPT_MS = 24 * 60 * 60 * 1000;

/** What a host reported about itself, and when. */
export interface StoredHost {
  readonly id: string;
  readonly report: HostReport;
  /** Milliseconds. */
  readonly updatedAt: number;
}

/** The hosts of one database, as each reports itself. */
export class HostStore {
  constructor(private readonly context: StoreContext) {}

  async save(id: string, report: HostReport): Promise<void> {
    const { database, clock } = this.context;
    const now = clock();
    const row = { report: JSON.stringify(report), updated_at: now };
    await database.write(async (tables) => {
      await tables
        .insertInto('hosts')
        .values({ id, started_at: Date.parse(report.startedAt), ...row })
        .onConflict((c) => c.column('id').doUpdateSet(row))
        .execute();
      await tables
        .deleteFrom('hosts')
        .where('updated_at', '<', now - KEPT_MS)
        .execute();
    });
  }

  /** A host that ends properly is not listed any more. */
  async remove(id: string): Promise<void> {
    await this.context.database.write((tables) =>
      tables.deleteFrom('hosts').where('id', '=', id).execute(),
    );
  }

  async list(): Promise<readonly StoredHost[]> {
    const rows = await this.context.database.tables
      .selectFrom('hosts')
      .selectAll()
      .orderBy('started_at')
      .execute();
    return rows.map(({ id, report, updated_at }) => ({
      id,
      report: JSON.parse(report) as HostReport,
      updatedAt: updated_at,
    }));
  }
}
