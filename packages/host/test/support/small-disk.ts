import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { type HostProcess, runHost } from './process.js';

const isRoot = process.getuid?.() === 0;
const UNSHARE = isRoot ? ['unshare', '-m'] : ['unshare', '-rm'];
const ENTER = isRoot ? ['-m'] : ['-U', '--preserve-credentials', '-m'];
const PIECE = Buffer.alloc(64 * 1024);

/** Why this user cannot mount a file system for a test; undefined if they can. Throws for root, who always can. */
export function checkSmallDisk(): string | undefined {
  const [command = '', ...args] = [...UNSHARE, 'mount', '-t', 'tmpfs', 'tmpfs', '/tmp'];
  const { status, error, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  if (status === 0) return undefined;
  const fault = `cannot mount a file system of limited size: ${error?.message ?? stderr.trim()}`;
  if (isRoot) throw new Error(fault);
  return fault;
}

/** A file system of a few megabytes in place of a folder, which only the hosts that it runs see. */
export class SmallDisk {
  private readonly filler: string;

  private constructor(
    private readonly folder: string,
    private readonly holder: ChildProcess,
  ) {
    // Other processes reach it through the root of one that sees it.
    this.filler = join(`/proc/${holder.pid}/root`, folder, 'fill');
  }

  static async mount(folder: string, megabytes: number): Promise<SmallDisk> {
    const script = `mount -t tmpfs -o size=${megabytes}m tmpfs "$0" && echo ok && exec sleep infinity`;
    const [command = '', ...args] = [...UNSHARE, 'sh', '-c', script, folder];
    const holder = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(holder.stdout, 'data');
    return new SmallDisk(folder, holder);
  }

  /** A host with its DATA_DIR there. */
  run(env: Record<string, string>): HostProcess {
    const launcher = ['nsenter', '-t', String(this.holder.pid), ...ENTER];
    return runHost({ DATA_DIR: this.folder, ...env }, [], undefined, launcher);
  }

  get freeBytes(): number {
    const { bavail, bsize } = statfsSync(join(this.filler, '..'));
    return bavail * bsize;
  }

  /** Whether it has a file. */
  has(name: string): boolean {
    return existsSync(join(this.filler, '..', name));
  }

  /** Writes until nothing more fits, or up to some bytes. */
  fill(bytes = Number.POSITIVE_INFINITY): void {
    append(this.filler, PIECE, bytes / PIECE.length);
    if (bytes === Number.POSITIVE_INFINITY) append(this.filler, PIECE.subarray(0, 512), bytes);
  }

  /** Removes what `fill` wrote. */
  free(): void {
    rmSync(this.filler);
  }

  close(): void {
    this.holder.kill('SIGKILL');
  }
}

function append(file: string, piece: Uint8Array, times: number): void {
  try {
    for (let written = 0; written < times; written++) appendFileSync(file, piece);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}
