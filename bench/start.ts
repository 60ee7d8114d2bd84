// How soon the host responds and how much memory it takes when idle, compared with a bare node:http server in the same rounds.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  atMost,
  type Figure,
  formatFigures,
  median,
  readLoad,
  reportFigures,
} from './support/figures.ts';

const ROUNDS = 7;
const MOST_MS = 400;
const MOST_MEGABYTES = 100;

const HELLO = `require('node:http')
  .createServer((_, response) => response.end('{"status":"ok"}'))
  .listen(process.env.PORT, '127.0.0.1')`;

const node = process.execPath;
const BARE: Command = { name: 'bare node:http', command: node, args: ['-e', HELLO] };
const HOST: Command = { name: 'host', command: node, args: ['packages/host/dist/bundle/main.js'] };
const NPM_START: Command = {
  name: '`npm start`: npm, host and gateway',
  command: 'npm',
  args: ['start', '--silent'],
};
const COMMANDS = [BARE, HOST, NPM_START];

interface Series {
  readonly command: Command;
  readonly rounds: Launch[];
}

/** Runs every command in every round, so that other load on the machine affects all of them. */
async function launchAll(): Promise<readonly Series[]> {
  const all = COMMANDS.map((command) => ({ command, rounds: [] as Launch[] }));
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { command, rounds } of all) {
      const launched = await launch(command);
      // The first round only loads the files into memory and fills the code cache.
      if (round > 0) rounds.push(launched);
    }
  }
  return all;
}

function toFigures(all: readonly Series[]): Figure[] {
  const [bare, ...ours] = all;
  const over = (series: Series | undefined, read: (launched: Launch) => number) =>
    median(series?.rounds.map(read) ?? []);
  const figure = (series: Series, name: string, read: (launched: Launch) => number) => {
    const [own, other] = [over(series, read), over(bare, read)];
    return { name: `${series.command.name}: ${name}`, own, other, ratio: own / other };
  };
  return ours.flatMap((series) => {
    const isHost = series.command === HOST;
    const start = figure(series, 'start to first response', ({ ms }) => ms);
    const memory = figure(series, 'idle memory', ({ megabytes }) => megabytes);
    return [
      toFigure(start, 'ms', isHost ? MOST_MS : undefined),
      toFigure(memory, 'MB', isHost ? MOST_MEGABYTES : undefined),
    ];
  });
}

interface Compared {
  readonly name: string;
  readonly own: number;
  readonly other: number;
  readonly ratio: number;
}

function toFigure({ name, own, other, ratio }: Compared, unit: string, most?: number): Figure {
  return {
    name,
    ours: `${own.toFixed(0)} ${unit}`,
    beside: `${BARE.name}: ${other.toFixed(0)} ${unit}`,
    ratio,
    ...(most !== undefined && { target: atMost(most, own, ` ${unit}`) }),
  };
}

const POLL_MS = 5;
/** After its first response a process still releases memory. */
const SETTLE_MS = 3000;
const START_TIMEOUT_MS = 60_000;

/** Starts a server that answers `GET /health` on PORT. */
interface Command {
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
}

interface Launch {
  /** From the start of the process to its first response. */
  readonly ms: number;
  /** Of all its processes, when they are idle. */
  readonly megabytes: number;
}

/** Starts a server on an empty folder, waits for its response, measures its memory and stops it. */
async function launch({ name, command, args }: Command): Promise<Launch> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sibyl-bench-'));
  const [port, gatewayPort] = [await freePort(), await freePort()];
  const own = { PORT: `${port}`, GATEWAY_PORT: `${gatewayPort}`, DATA_DIR: dataDir };
  const start = performance.now();
  const child = spawn(command, args, {
    env: { ...process.env, ...own, LOG_LEVEL: 'warn' },
    stdio: ['ignore', 'ignore', 'inherit'],
    // In its own group, so that the processes it starts are measured and stopped with it.
    detached: true,
  });
  const group = child.pid ?? 0;
  try {
    while (!(await responds(port))) {
      if (child.exitCode !== null) throw new Error(`${name} exited with ${child.exitCode}`);
      if (performance.now() - start > START_TIMEOUT_MS) throw new Error(`${name} does not respond`);
      await sleep(POLL_MS);
    }
    const ms = performance.now() - start;
    await sleep(SETTLE_MS);
    return { ms, megabytes: readMegabytes(group) };
  } finally {
    const ended = child.exitCode === null ? once(child, 'exit') : undefined;
    if (ended) process.kill(-group);
    await ended;
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function responds(port: number): Promise<boolean> {
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

function readMegabytes(group: number): number {
  const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return processes
    .filter((pid) => readGroup(pid) === group)
    .reduce((sum, pid) => sum + readRss(pid), 0);
}

function readGroup(pid: string): number {
  // The name in the second field may contain spaces, so the fields are counted after it.
  return Number(readProcFile(pid, 'stat').split(') ')[1]?.split(' ')[2]);
}

function readRss(pid: string): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readProcFile(pid, 'status'))?.[1] ?? 0) / 1024;
}

/** Empty for a process that has just exited. */
function readProcFile(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return '';
  }
}

console.log(`Load of the machine before: ${readLoad()}\n`);
const figures = toFigures(await launchAll());
console.log(formatFigures(`median of ${ROUNDS}`, figures));
console.log(`\nLoad of the machine after: ${readLoad()}`);
await reportFigures(figures);
