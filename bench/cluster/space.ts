import pg from 'pg';
import type { Figure } from '../support/figures.ts';
import { post } from '../turn/targets.ts';
import { BenchCluster } from './hosts.ts';

/** An answer of 200 tokens at 50 tokens per second. */
const MODEL = { tokens: 200, gapMs: 20 };
const SESSIONS = 40;
const TURNS_PER_SESSION = 5;
const TABLES = ['messages', 'runs', 'frames'] as const;

/** Rows and bytes of a turn, with their share of the indexes. */
export async function measureSpace(databaseUrl: string): Promise<Figure[]> {
  const cluster = await BenchCluster.start(databaseUrl, { count: 1, model: MODEL });
  try {
    const body = JSON.stringify({ message: 'What does the almanac say about the coast?' });
    const sessions = await Promise.all(
      Array.from({ length: SESSIONS }, () => cluster.openSession()),
    );
    await Promise.all(
      sessions.map(async ({ sessionId, headers }) => {
        for (let turn = 0; turn < TURNS_PER_SESSION; turn++)
          await post({ url: cluster.url(0), path: `/messages/${sessionId}`, headers, body });
      }),
    );
  } finally {
    await cluster.stop();
  }
  return readTables(databaseUrl);
}

async function readTables(databaseUrl: string): Promise<Figure[]> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const turns = SESSIONS * TURNS_PER_SESSION;
  const figures: Figure[] = [];
  for (const table of TABLES) {
    // Without the space of earlier versions of rows, which vacuum reuses.
    await client.query(`vacuum full ${table}`);
    const { rows } = await client.query(
      `select count(*)::float as count, pg_total_relation_size('${table}')::float as bytes from ${table}`,
    );
    const { count, bytes } = rows[0];
    const ours = `${(count / turns).toFixed(0)} rows, ${(bytes / turns).toFixed(0)} bytes`;
    figures.push({ name: `${table} per turn of ${MODEL.tokens} tokens`, ours });
  }
  await client.end();
  return figures;
}
