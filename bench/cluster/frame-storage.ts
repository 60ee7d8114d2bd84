import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { Store } from '../../packages/host/src/store/store.ts';
import { atLeast, type Figure, median } from '../support/figures.ts';
import { readProcessCpuMs } from '../support/server-process.ts';
import { post } from '../turn/targets.ts';
import { BenchCluster } from './hosts.ts';

const RUNS = 300;
/** What a stream of about 45 tokens per second adds between two flushes. */
const FRAMES_PER_FLUSH = 7;
const FLUSH_MS = 150;
const ROUNDS = 12;
const POOL_SIZE = 10;
const LEAST_RATIO = 5;
const DATA = JSON.stringify({ content: 'word ', timestamp: '2026-01-31T12:00:00.000Z' });

interface OpenRun {
  readonly owner: string;
  readonly runId: string;
  nextSeq: number;
}

/**
 * Stores the frames of many runs in the way of the host, one statement for all runs, and in that of version 0.1, one
 * transaction for each run; in turns, so that other load of the machine affects both.
 */
export async function measureFrameStorage(databaseUrl: string): Promise<Figure[]> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const store = await openBuiltStore({ databaseUrl, dataDir });
  const pool = new pg.Pool({ connectionString: databaseUrl, max: POOL_SIZE });
  // An idle connection that ends must not end the process; the next query reports it.
  pool.on('error', () => {});
  try {
    const runs = await startRuns(store);
    const backends = await listBackends(pool);
    const together: Cost[] = [];
    const apart: Cost[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      together.push(await measure(backends, () => flushTogether(store, runs)));
      apart.push(await measure(backends, () => flushApart(pool, runs)));
    }
    return toFigures(summarize(together), summarize(apart));
  } finally {
    await pool.end();
    await store.close();
    rmSync(dataDir, { recursive: true, force: true });
  }
}

/** What it takes to store the frames of all runs once. */
interface Cost {
  readonly ms: number;
  /** Processor time of this process, and of PostgreSQL. */
  readonly hostMs: number;
  readonly postgresMs: number;
}

/** The first rounds warm up. Processor time is summed, since Linux counts it in steps of 10 ms. */
function summarize(costs: readonly Cost[]): Cost {
  const counted = costs.slice(2);
  const average = (figure: (cost: Cost) => number) =>
    counted.reduce((sum, cost) => sum + figure(cost), 0) / counted.length;
  return {
    ms: median(counted.map(({ ms }) => ms)),
    hostMs: average(({ hostMs }) => hostMs),
    postgresMs: average(({ postgresMs }) => postgresMs),
  };
}

function toFigures(together: Cost, apart: Cost): Figure[] {
  const perCore = ({ hostMs, postgresMs }: Cost) => (RUNS * FLUSH_MS) / (hostMs + postgresMs);
  const countByTime = ({ ms }: Cost) => (RUNS * FLUSH_MS) / ms;
  const perRun = ({ hostMs }: Cost) => `${((hostMs / RUNS) * 1000).toFixed(0)} µs`;
  const ratio = perCore(together) / perCore(apart);
  return [
    {
      name: 'streams whose frames one core of host and PostgreSQL can store',
      ours: perCore(together).toFixed(0),
      beside: `one transaction per run: ${perCore(apart).toFixed(0)}`,
      ratio,
      target: atLeast(LEAST_RATIO, ratio),
    },
    {
      // On a busy machine, ten connections get more processor time than one.
      name: 'streams whose frames are stored in time',
      ours: countByTime(together).toFixed(0),
      beside: `one transaction per run, ${POOL_SIZE} connections: ${countByTime(apart).toFixed(0)}`,
      ratio: countByTime(together) / countByTime(apart),
    },
    {
      name: 'processor of the host per run and flush',
      ours: perRun(together),
      beside: `one transaction per run: ${perRun(apart)}`,
      ratio: together.hostMs / apart.hostMs,
    },
  ];
}

async function measure(backends: readonly number[], task: () => Promise<void>): Promise<Cost> {
  const postgres = readCpuMs(backends);
  const cpu = process.cpuUsage();
  const start = performance.now();
  await task();
  const ms = performance.now() - start;
  const { user, system } = process.cpuUsage(cpu);
  return { ms, hostMs: (user + system) / 1000, postgresMs: readCpuMs(backends) - postgres };
}

/** The processes of PostgreSQL, once all connections of the pool are open. */
async function listBackends(pool: pg.Pool): Promise<number[]> {
  const clients = await Promise.all(Array.from({ length: POOL_SIZE }, () => pool.connect()));
  for (const client of clients) client.release();
  const { rows } = await pool.query<{ pid: number }>('select pid from pg_stat_activity');
  return rows.map(({ pid }) => pid);
}

const readCpuMs = (pids: readonly number[]) =>
  pids.reduce((sum, pid) => sum + readProcessCpuMs(pid), 0);

/** The store of the build, as the host uses it. */
async function openBuiltStore(options: {
  readonly databaseUrl: string;
  readonly dataDir: string;
}): Promise<Store> {
  const built = new URL('../../packages/host/dist/store/store.js', import.meta.url).href;
  const { openStore } = await import(built);
  return openStore({ ...options, secretKey: new Uint8Array(32).fill(7) });
}

async function startRuns({ sessions, runs }: Store): Promise<OpenRun[]> {
  const open: OpenRun[] = [];
  for (let i = 0; i < RUNS; i++) {
    const owner = `did:key:bench${i}`;
    const session = await sessions.create({ owner, oracleDid: 'did:key:oracle', title: 'Bench' });
    const runId = runs.newId();
    await runs.start({
      runId: runId,
      owner,
      sessionId: session.sessionId,
      requestId: runId,
      message: { content: 'What does the almanac say?' },
      multitask: 'enqueue',
      limits: { live: 20, waiting: 10 },
      request: {},
    });
    open.push({ owner, runId, nextSeq: 1 });
  }
  return open;
}

function takeFrames(run: OpenRun) {
  return Array.from({ length: FRAMES_PER_FLUSH }, () => ({
    seq: run.nextSeq++,
    event: 'message',
    data: DATA,
  }));
}

async function flushTogether({ runs: store }: Store, runs: readonly OpenRun[]): Promise<void> {
  const { lost } = await store.flush(
    runs.map((run) => ({ owner: run.owner, runId: run.runId, frames: takeFrames(run), steps: [] })),
  );
  if (lost.length > 0) throw new Error(`${lost.length} runs were not stored`);
}

async function flushApart(pool: pg.Pool, runs: readonly OpenRun[]): Promise<void> {
  await Promise.all(runs.map((run) => flushOne(pool, run)));
}

/**
 * One transaction for one run, as in version 0.1: an update of the run and inserts of 4, 2 and 1 rows with a frame
 * each, all prepared.
 */
async function flushOne(pool: pg.Pool, run: OpenRun): Promise<void> {
  const client = await pool.connect();
  try {
    const frames = takeFrames(run);
    await client.query('begin');
    await client.query({
      name: 'touch',
      text: `update runs set updated_at = $1, last_seq = $2
        where owner = $3 and id = $4 and status in ('queued', 'running')`,
      values: [Date.now(), frames.at(-1)?.seq, run.owner, run.runId],
    });
    for (const [from, to] of [
      [0, 4],
      [4, 6],
      [6, FRAMES_PER_FLUSH],
    ] as const)
      await insertFrames(client, run, frames.slice(from, to));
    await client.query('commit');
  } finally {
    client.release();
  }
}

async function insertFrames(
  client: pg.PoolClient,
  run: OpenRun,
  frames: ReturnType<typeof takeFrames>,
): Promise<void> {
  const rows = frames.map((_, i) => `($1, $2, $${2 * i + 3}, $${2 * i + 4})`);
  await client.query({
    name: `frames ${frames.length}`,
    text: `insert into frames (owner, run_id, seq, lines) values ${rows.join(', ')}
      on conflict do nothing`,
    values: [
      run.owner,
      run.runId,
      ...frames.flatMap(({ seq, event, data }) => [seq, `${event} ${data}`]),
    ],
  });
}

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
