import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { findFreePort } from './free-port.js';
import { type PostgresHome, preparePostgresHome, runAsOwner } from './postgres-home.js';

const START_LIMIT_MS = 60_000;
const ATTEMPTS = 3;

const CLUSTER = ['-U', 'sibyl', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'];

/** Fast rather than safe: the data lives as long as the test run. */
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'off',
  full_page_writes: 'off',
  max_connections: '200',
  shared_buffers: '32MB',
};

/**
 * Ends the server and removes its files once standard input closes, which happens however the test
 * run ends, also by `kill -9`.
 */
const WATCHED_SERVER = `
  exec 3<&0
  "$0" "$@" 3<&- >"$PGHOME/log" 2>&1 & server=$!
  (cat <&3 >/dev/null; kill -INT $server) &
  wait $server
  rm -rf "$PGHOME"
`;

export interface PostgresServer {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts a PostgreSQL server on a free port of 127.0.0.1. */
export async function startPostgres(): Promise<PostgresServer> {
  for (let attempt = 1; ; attempt++) {
    const home = await preparePostgresHome();
    try {
      return await startIn(home);
    } catch (error) {
      rmSync(home.path, { recursive: true, force: true });
      // Another process may have taken the port before the server did.
      if (attempt === ATTEMPTS) throw error;
    }
  }
}

async function startIn(home: PostgresHome): Promise<PostgresServer> {
  const data = join(home.path, 'data');
  runAsOwner(home, 'initdb', ['-D', data, ...CLUSTER]);
  const port = await findFreePort();
  const url = `postgres://sibyl@127.0.0.1:${port}/postgres`;
  const server = spawnServer(home, ['-D', data, '-p', String(port)]);
  try {
    await untilReady(url, { server, home });
    return { url, stop: () => stop(server) };
  } catch (error) {
    await stop(server);
    throw error;
  }
}

function spawnServer(home: PostgresHome, flags: readonly string[]): ChildProcess {
  const settings = Object.entries(SETTINGS).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const binary = join(home.binaries, 'postgres');
  return spawn('sh', ['-c', WATCHED_SERVER, binary, ...flags, ...settings], {
    ...home.owner,
    cwd: home.path,
    env: { ...process.env, PGHOME: home.path },
    // Its own process group: Ctrl-C in the terminal must not end the watcher before the server.
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
}

async function untilReady(
  url: string,
  { server, home }: { server: ChildProcess; home: PostgresHome },
): Promise<void> {
  const deadline = Date.now() + START_LIMIT_MS;
  while (!(await answers(url))) {
    if (server.exitCode !== null || Date.now() > deadline) throw new Error(readLog(home));
    await sleep(20);
  }
}

/** Whether PostgreSQL, or a pooler before it, accepts connections. */
export async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 2_000 });
  client.on('error', () => {});
  try {
    await client.connect();
    await client.end();
    return true;
  } catch {
    return false;
  }
}

async function stop(server: ChildProcess): Promise<void> {
  if (server.exitCode !== null) return;
  const exited = once(server, 'exit');
  server.stdin?.end();
  await exited;
}

function readLog(home: PostgresHome): string {
  try {
    return readFileSync(join(home.path, 'log'), 'utf8').slice(-2_000);
  } catch {
    return 'it ended at once and left no log';
  }
}
