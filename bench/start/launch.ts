import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const ASK_AGAIN_MS = 5;
/** After its first answer a process still tidies up. */
const SETTLE_MS = 3000;
const PATIENCE_MS = 60_000;

/** A way to start a server that answers `GET /health` on PORT. */
export interface Command {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
}

export interface Launch {
  /** From the start of the process to its first answer. */
  readonly ms: number;
  /** Of all processes it consists of, once they have nothing to do. */
  readonly megabytes: number;
}

/** Starts a server on an empty folder, waits for its answer, looks at its memory and ends it. */
export async function launch({ name, command, args }: Command): Promise<Launch> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const [port, gatewayPort] = [await freePort(), await freePort()];
  const own = { PORT: `${port}`, GATEWAY_PORT: `${gatewayPort}`, DATA_DIR: dataDir };
  const start = performance.now();
  const child = spawn(command, args, {
    env: { ...process.env, ...own, LOG_LEVEL: 'warn' },
    stdio: ['ignore', 'ignore', 'inherit'],
    // A group of its own: what it starts is ended, and weighed, with it.
    detached: true,
  });
  const group = child.pid ?? 0;
  try {
    while (!(await answers(port))) {
      if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}`);
      if (performance.now() - start > PATIENCE_MS) throw new Error(`${name} does not answer`);
      await sleep(ASK_AGAIN_MS);
    }
    const ms = performance.now() - start;
    await sleep(SETTLE_MS);
    return { ms, megabytes: megabytesOf(group) };
  } finally {
    const ended = child.exitCode === null ? once(child, 'exit') : undefined;
    if (ended) process.kill(-group);
    await ended;
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function answers(port: number): Promise<boolean> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/health`)).ok;
  } catch {
    return false;
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address ? address.port : 0;
}

function megabytesOf(group: number): number {
  const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return processes
    .filter((pid) => groupOf(pid) === group)
    .reduce((sum, pid) => sum + rssOf(pid), 0);
}

function groupOf(pid: string): number {
  // The name in the second field may hold spaces, so fields are counted behind it.
  return Number(read(pid, 'stat').split(') ')[1]?.split(' ')[2]);
}

function rssOf(pid: string): number {
  return Number(/VmRSS:\s+(\d+)/.exec(read(pid, 'status'))?.[1] ?? 0) / 1024;
}

/** Nothing of a process that has just ended. */
function read(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}
