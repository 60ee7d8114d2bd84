import { randomUUID } from 'node:crypto';
import type { PluginDatabase } from '@sibyl/plugin-kit';
import type { ClaimsTables } from './tables.js';

/** Longer than one claim can take. */
const LEASE_MS = 60_000;
const NAME = 'process';

interface RunnerLeaseParts {
  readonly database: PluginDatabase<ClaimsTables>;
  readonly clock: () => number;
}

/** Lets one runner work at a time, whatever process it is in; one that died is forgotten after a minute. */
export class RunnerLease {
  readonly #parts: RunnerLeaseParts;
  readonly #holder = randomUUID();

  constructor(parts: RunnerLeaseParts) {
    this.#parts = parts;
  }

  /** Takes the lease or prolongs it; false while another has it. */
  hold(): Promise<boolean> {
    const { database, clock } = this.#parts;
    const now = clock();
    const values = { holder: this.#holder, lease_until: now + LEASE_MS };
    return database.write(async (tables) => {
      const held = await tables
        .insertInto('claims_leases')
        .values({ name: NAME, ...values })
        .onConflict((c) =>
          c
            .column('name')
            .doUpdateSet(values)
            .where((e) =>
              e.or([
                e('claims_leases.lease_until', '<', now),
                e('claims_leases.holder', '=', this.#holder),
              ]),
            ),
        )
        .returning('name')
        .executeTakeFirst();
      return held !== undefined;
    });
  }

  async release(): Promise<void> {
    await this.#parts.database.write(async (tables) => {
      await tables.deleteFrom('claims_leases').where('holder', '=', this.#holder).execute();
    });
  }
}
