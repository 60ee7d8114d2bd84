// Builds what changed since the last start, then runs the host in this process.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const STAMP = 'node_modules/.cache/sibyl/built';
const MAIN = '../packages/host/dist/main.js';

/** When a file, or anything in a folder, was last touched; 0 if it is not there. */
function touchedAt(path: string): number {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (!stats?.isDirectory()) return stats?.mtimeMs ?? 0;
  const inside = readdirSync(path).map((name) => touchedAt(join(path, name)));
  return Math.max(stats.mtimeMs, ...inside);
}

function sources(): string[] {
  const roots = ['packages', 'plugins'].filter((root) => touchedAt(root) > 0);
  const workspaces = roots.flatMap((root) => readdirSync(root).map((name) => join(root, name)));
  const parts = workspaces.flatMap((path) => [join(path, 'src'), join(path, 'tsconfig.json')]);
  return ['tsconfig.json', 'tsconfig.base.json', 'package-lock.json', ...parts];
}

function isBuilt(): boolean {
  const builtAt = touchedAt(STAMP);
  return (
    touchedAt('packages/host/dist/main.js') > 0 &&
    sources().every((path) => touchedAt(path) < builtAt)
  );
}

function build(): number {
  console.log('Building…');
  const { status } = spawnSync('tsc', ['-b'], { stdio: 'inherit' });
  if (status === 0) {
    mkdirSync(dirname(STAMP), { recursive: true });
    writeFileSync(STAMP, '');
  }
  return status ?? 1;
}

/** npm's shell does not pass signals on, so the host notices by itself that npm has gone. */
function stopWithParent(): void {
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    process.kill(process.pid, 'SIGTERM');
  }, 500);
  watch.unref();
}

stopWithParent();
const failure = isBuilt() ? 0 : build();
if (failure) process.exitCode = failure;
else await import(MAIN);
