import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findFreePort } from './free-port.js';
import { type PostgresHome, preparePostgresHome, runAsOwner } from './postgres-home.js';
import { answers } from './postgres-server.js';

const START_LIMIT_MS = 60_000;

const CLUSTER = ['-U', 'sibyl', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'];
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'off',
  max_connections: '200',
  shared_buffers: '32MB',
};

/**
 * Starts the server again each time it ends, unless the file `hold` exists. Ends with standard input, which closes however
 * the test run ends; in immediate mode, since the server may be stopped by SIGSTOP.
 */
const SUPERVISED_SERVER = `
  exec 3<&0
  (cat <&3 >/dev/null; touch "$PGHOME/end"
   while [ -d "$PGHOME" ]; do
     pid=$(head -n 1 "$PGHOME/data/postmaster.pid" 2>/dev/null) && kill -CONT $pid && kill -QUIT $pid
     sleep 0.2
   done) 2>/dev/null &
  while [ ! -e "$PGHOME/end" ]; do
    if [ -e "$PGHOME/hold" ]; then sleep 0.05
    else "$0" "$@" 3<&- >>"$PGHOME/log" 2>&1
    fi
  done
  rm -rf "$PGHOME"
`;

/** A PostgreSQL server for one test file, which may crash and freeze. */
export class RestartablePostgres {
  private constructor(
    readonly url: string,
    private readonly home: PostgresHome,
    private readonly supervisor: ChildProcess,
  ) {}

  static async start(): Promise<RestartablePostgres> {
    const home = await preparePostgresHome();
    const data = join(home.path, 'data');
    runAsOwner(home, 'initdb', ['-D', data, ...CLUSTER]);
    const port = await findFreePort();
    const settings = Object.entries(SETTINGS).flatMap(([name, value]) => [
      '-c',
      `${name}=${value}`,
    ]);
    const program = [join(home.binaries, 'postgres'), '-D', data, '-p', String(port), ...settings];
    const supervisor = spawn('sh', ['-c', SUPERVISED_SERVER, ...program], {
      ...home.owner,
      cwd: home.path,
      env: { ...process.env, PGHOME: home.path },
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
    });
    const url = `postgres://sibyl@127.0.0.1:${port}/postgres`;
    const server = new RestartablePostgres(url, home, supervisor);
    await server.untilReady();
    return server;
  }

  /** Ends the server as `pg_ctl stop -m immediate` does. It starts again at once, or after `downMs`. */
  async crash(downMs = 0): Promise<void> {
    const hold = join(this.home.path, 'hold');
    if (downMs > 0) writeFileSync(hold, '');
    const pid = this.readPid();
    process.kill(pid, 'SIGQUIT');
    while (isRunning(pid)) await sleep(10);
    await sleep(downMs);
    rmSync(hold, { force: true });
    await this.untilReady();
  }

  /** Stops all processes of the server for this time: connections stay open, and nothing answers. */
  async freeze(ms: number): Promise<void> {
    const postmaster = this.readPid();
    process.kill(postmaster, 'SIGSTOP');
    const pids = [postmaster, ...findChildren(postmaster)];
    signalAll(pids, 'SIGSTOP');
    try {
      await sleep(ms);
    } finally {
      signalAll(pids, 'SIGCONT');
    }
    await this.untilReady();
  }

  async stop(): Promise<void> {
    if (this.supervisor.exitCode !== null) return;
    const exited = once(this.supervisor, 'exit');
    this.supervisor.stdin?.end();
    await exited;
  }

  private readPid(): number {
    return Number(readFileSync(join(this.home.path, 'data/postmaster.pid'), 'utf8').split('\n')[0]);
  }

  private async untilReady(): Promise<void> {
    const deadline = performance.now() + START_LIMIT_MS;
    while (!(await answers(this.url))) {
      if (performance.now() > deadline)
        throw new Error(readFileSync(join(this.home.path, 'log'), 'utf8').slice(-2_000));
      await sleep(20);
    }
  }
}

const isRunning = (pid: number) => existsSync(`/proc/${pid}`);

/** The backends have their own process groups, so they are found by their parent. */
function findChildren(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && readParent(name) === parent)
    .map(Number);
}

function readParent(pid: string): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
  } catch {
    // It has ended.
    return undefined;
  }
}

function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids)
    try {
      process.kill(pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
}
