import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { TestHost } from './host.js';
import { TestUser } from './user.js';

/** A host whose users are at different addresses needs it. */
export const BEHIND_PROXY = { TRUST_PROXY: 'loopback' };

/** A user at an address, as a proxy reports it. */
export class Neighbor extends TestUser {
  constructor(
    host: TestUser['host'],
    private readonly address: string,
  ) {
    super(host);
  }

  override get headers(): Record<string, string> {
    return { ...super.headers, 'x-forwarded-for': this.address };
  }
}

/** Makes users known to a host on SQLite: they had turns long ago. Before their first request. */
export function makeKnown({ dataDir }: TestHost, users: readonly TestUser[]): void {
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'));
  const insert = database.prepare(
    `insert into usage_days (owner, day, session_id, model, turns, input_tokens, output_tokens, cached_tokens)
     values (?, '2020-01-01', 's', '', 1, 0, 0, 0)`,
  );
  for (const { did } of users) insert.run(did);
  database.close();
}
