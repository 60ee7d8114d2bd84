import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, it, onTestFinished } from 'vitest';
import { loadOracleIdentity } from '../auth/oracle-identity.js';
import { loadConfig } from '../config/config.js';
import { openDatabase } from '../store/open-database.js';
import { toSqlitePath } from '../store/sqlite/sqlite.js';
import { backUpStore } from './backup-restore.js';

/** Writes a row to two tables every few milliseconds, and prints how long the slowest of these writes took. */
const WRITER = `
const { DatabaseSync } = require('node:sqlite');
const database = new DatabaseSync(process.argv[1], { timeout: 20_000 });
let longest = 0;
let number = 0;
const write = () => {
  const start = performance.now();
  database.exec('begin immediate; insert into a values (' + ++number + '); insert into b values (' + number + '); commit');
  longest = Math.max(longest, performance.now() - start);
};
const timer = setInterval(write, 5);
process.on('SIGTERM', () => { clearInterval(timer); console.log(longest); });
console.log('writing');
`;

it('backUpStore copies one moment of a database that another process writes all the time', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-backup-'));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const config = loadConfig({ DATA_DIR: dataDir });
  await loadOracleIdentity(config);
  await (await openDatabase({ dataDir })).close();
  const database = new DatabaseSync(toSqlitePath(dataDir));
  database.exec(`create table a (n integer); create table b (n integer);
    create table filler (data blob); insert into filler
    with recursive rows (n) as (select 1 union all select n + 1 from rows where n < 1200)
    select randomblob(100000) from rows`);
  database.close();
  const writer = spawn(process.execPath, ['-e', WRITER, toSqlitePath(dataDir)]);
  onTestFinished(() => void writer.kill('SIGKILL'));
  await once(writer.stdout, 'data');

  const shares: number[] = [];
  const folder = join(dataDir, 'backup');
  await backUpStore(folder, config, (done) => void shares.push(done));

  writer.kill('SIGTERM');
  const longest = Number((await once(writer.stdout, 'data'))[0]);
  process.stderr.write(`the longest write during a backup took ${longest.toFixed(0)} ms\n`);
  expect(shares.length).toBeGreaterThan(3);
  expect(shares).toEqual(shares.toSorted((a, b) => a - b));
  const copy = new DatabaseSync(toSqlitePath(folder), { readOnly: true });
  const count = (table: string) => copy.prepare(`select count(*) as n from ${table}`).get()?.n;
  expect(count('a')).toBe(count('b'));
  expect(count('filler')).toBe(1200);
  copy.close();
}, 60_000);

it('backUpStore refuses to take space that must stay free', async () => {
  const dataDir = await mkdtemp(join(tmpdir(), 'sibyl-backup-'));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const config = loadConfig({ DATA_DIR: dataDir, DISK_MIN_FREE: '100000gb' });
  await loadOracleIdentity(config);
  await (await openDatabase({ dataDir })).close();
  await expect(backUpStore(join(dataDir, 'backup'), config)).rejects.toThrow(/too little space/);
});
