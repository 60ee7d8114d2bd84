// Backs up a SQLite database of 1 GB, or the number of megabytes in the first argument, while a host takes five turns per
// second, and prints how long turns take meanwhile: npm run bench:backup -- 200
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateSigner, mintAuthInvocation } from '@sibyl/ucan';
import { type Figure, formatFigures, reportFigures } from './support/figures.ts';
import { startServer } from './support/server-process.ts';

const TURNS_PER_SECOND = 5;
const QUIET_MS = 10_000;
const LIMIT_MS = 600_000;
const ROW_BYTES = 100_000;
const MANY = '100000000';

const megabytes = Number(process.argv[2] ?? 1024);
if (!(megabytes > 0)) throw new Error('The first argument is the number of megabytes');

const directory = mkdtempSync(join(tmpdir(), 'sibyl-backup-'));
const dataDir = join(directory, 'data');
const host = await startServer(new URL('./servers/host.ts', import.meta.url), {
  env: {
    PORT: '0',
    DATA_DIR: dataDir,
    MODEL: 'offline',
    LOG_LEVEL: 'warn',
    TURNS_PER_USER: MANY,
    RATE_LIMIT_PER_MINUTE: MANY,
    RATE_LIMIT_ANONYMOUS_PER_MINUTE: MANY,
  },
});
const signer = generateSigner();
/** How long each turn took. */
let turns: number[] = [];
const running: Promise<void>[] = [];

try {
  fill();
  const { sessionId } = await request('/sessions');
  let number = 0;
  const timer = setInterval(
    () => running.push(takeTurn(sessionId, ++number)),
    1000 / TURNS_PER_SECOND,
  );
  await sleep(QUIET_MS);
  const before = turns;
  turns = [];
  const seconds = await backUp();
  clearInterval(timer);
  await Promise.all(running);
  const figures = [
    {
      name: `backup of ${megabytes} MB under ${TURNS_PER_SECOND} turns/s`,
      ours: `${seconds.toFixed(1)} s`,
    },
    describe('turns before it', before),
    describe('turns meanwhile', turns),
  ];
  console.log(formatFigures('backup', figures));
  await reportFigures(figures);
} finally {
  await host.stop();
  rmSync(directory, { recursive: true, force: true });
}

function describe(name: string, times: readonly number[]): Figure {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) =>
    `${(sorted[Math.floor(share * (sorted.length - 1))] ?? 0).toFixed(0)} ms`;
  return {
    name: `${name} (${times.length})`,
    ours: `p50 ${at(0.5)}, p95 ${at(0.95)}, longest ${at(1)}`,
  };
}

function fill(): void {
  const database = new DatabaseSync(join(dataDir, 'sibyl.db'), { timeout: 20_000 });
  database.exec('create table filler (owner text not null, data blob)');
  const insert = database.prepare(
    `insert into filler values ('did:example:filler', randomblob(${ROW_BYTES}))`,
  );
  for (let left = megabytes * 1e6; left > 0; left -= ROW_BYTES) insert.run();
  database.close();
}

async function takeTurn(sessionId: string, number: number): Promise<void> {
  const start = performance.now();
  await request(`/messages/${sessionId}`, { message: `question ${number}` });
  turns.push(performance.now() - start);
}

async function request(path: string, body: object = {}) {
  const minted = mintAuthInvocation({ signer, audience: host.did ?? '' });
  if (minted.error) throw new Error(minted.error.detail);
  const headers = {
    authorization: `Bearer ${minted.ok.token}`,
    'x-auth-type': 'ucan',
    'content-type': 'application/json',
  };
  const response = await fetch(host.url + path, {
    method: 'POST',
    headers,
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`POST ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

/** The seconds that `sibyl backup` takes. */
async function backUp(): Promise<number> {
  const start = performance.now();
  const command = [
    join(import.meta.dirname, '../packages/cli/bin/sibyl.js'),
    'backup',
    join(directory, 'copy'),
  ];
  const env = { ...process.env, DATA_DIR: dataDir };
  const child = spawn(process.execPath, command, { env, stdio: 'inherit', timeout: LIMIT_MS });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`sibyl backup ended with ${code}`);
  return (performance.now() - start) / 1000;
}
