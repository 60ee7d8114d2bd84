import { spawnSync } from 'node:child_process';
import { appendFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type HostProcess, runHost } from './process.js';

const UNSHARE = process.getuid?.() === 0 ? ['unshare', '-m'] : ['unshare', '-rm'];
const PIECE = Buffer.alloc(64 * 1024);

/** Why this machine cannot mount a file system for a test; undefined if it can. */
export function checkSmallDisk(): string | undefined {
  const [command = '', ...args] = [...UNSHARE, 'mount', '-t', 'tmpfs', 'tmpfs', '/tmp'];
  const { status, error, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  if (status === 0) return undefined;
  return `cannot mount a file system of limited size: ${error?.message ?? stderr.trim()}`;
}

/** A host whose DATA_DIR is a separate file system of a few megabytes. */
export interface SmallDiskHost extends HostProcess {
  /** Writes until nothing more fits, or up to some bytes. */
  fill(bytes?: number): void;
  /** Removes what `fill` wrote. */
  free(): void;
}

export function runOnSmallDisk(
  env: Record<string, string> & { readonly DATA_DIR: string },
  { megabytes, isFull = false }: { readonly megabytes: number; readonly isFull?: boolean },
): SmallDiskHost {
  const fillUp = isFull ? 'cat /dev/zero > "$DATA_DIR/fill" 2>/dev/null;' : '';
  const script = `mount -t tmpfs -o size=${megabytes}m tmpfs "$DATA_DIR" && { ${fillUp} exec "$@"; }`;
  const host = runHost(env, [], undefined, [...UNSHARE, 'sh', '-c', script, 'sh']);
  // Only that process sees the mount; others can access it through its root.
  const file = join(`/proc/${host.child.pid}/root`, env.DATA_DIR, 'fill');
  return {
    ...host,
    fill: (bytes = Number.POSITIVE_INFINITY) => {
      append(file, PIECE, bytes / PIECE.length);
      if (bytes === Number.POSITIVE_INFINITY) append(file, PIECE.subarray(0, 512), bytes);
    },
    free: () => rmSync(file),
  };
}

function append(file: string, piece: Uint8Array, times: number): void {
  try {
    for (let written = 0; written < times; written++) appendFileSync(file, piece);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
  }
}
