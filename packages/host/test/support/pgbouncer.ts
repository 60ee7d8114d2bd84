import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { findProgram } from '../../../../scripts/debian-programs.ts';
import { findFreePort } from './free-port.js';
import { answers } from './postgres-server.js';

const UNPRIVILEGED_UID = 65534;

/** Starts a real PgBouncer before a database for the duration of a test; returns its address. */
export async function startPgBouncer(
  url: string,
  mode: 'transaction' | 'session',
): Promise<string> {
  const { hostname, port, username, password, pathname } = new URL(url);
  const folder = mkdtempSync(join(tmpdir(), 'sibyl-pooler-'));
  const own = new URL(url);
  own.host = `127.0.0.1:${await findFreePort()}`;
  const file = join(folder, 'pgbouncer.ini');
  const login = password ? `user=${username} password=${password}` : `user=${username}`;
  const target = `host=${hostname} port=${port || 5432} ${login}`;
  writeFileSync(
    file,
    `[databases]
${pathname.slice(1)} = ${target}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${own.port}
unix_socket_dir =
auth_type = any
pool_mode = ${mode}
`,
  );
  chmodSync(folder, 0o755);
  // PgBouncer refuses to run as root.
  const user = process.getuid?.() === 0 ? { uid: UNPRIVILEGED_UID } : {};
  const child = spawn(findProgram('pgbouncer'), [file], { stdio: 'ignore', ...user });
  onTestFinished(() => stop(child, folder));
  await expect.poll(() => answers(own.href)).toBe(true);
  return own.href;
}

async function stop(child: ChildProcess, folder: string): Promise<void> {
  const ended = child.exitCode ?? once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
  rmSync(folder, { recursive: true, force: true });
}
