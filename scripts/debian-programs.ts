// Finds programs that tests start; on Debian as root, installs those that are missing.
import { spawnSync } from 'node:child_process';

/** Names of programs and of the Debian packages that contain them. */
const PACKAGES = {
  caddy: 'caddy',
  fish: 'fish',
  haproxy: 'haproxy',
  nginx: 'nginx-light',
  pgbouncer: 'pgbouncer',
  promtool: 'prometheus',
  zsh: 'zsh',
} as const;

export type Program = keyof typeof PACKAGES;

/** Some packages put their programs where only root's PATH leads. */
const PATH = `${process.env.PATH}:/usr/sbin:/usr/bin`;

const find = (name: Program): string | undefined =>
  spawnSync('which', [name], { encoding: 'utf8', env: { ...process.env, PATH } }).stdout?.trim() ||
  undefined;

/** The path of a program. Throws with the name of its package if it is missing and cannot be installed. */
export function findProgram(name: Program): string {
  if (!find(name)) install([name]);
  const path = find(name);
  if (path) return path;
  throw new Error(
    `This test needs ${name}: install it (on Debian: apt-get install ${PACKAGES[name]})`,
  );
}

/** Installs all that are missing, before tests that need them start at the same time. */
export function installPrograms(): void {
  const missing = (Object.keys(PACKAGES) as Program[]).filter((name) => !find(name));
  if (missing.length === 0) return;
  console.log(`Installing ${missing.join(', ')} for the tests…`);
  install(missing);
}

/** Services of the packages must not start: tests run the programs themselves. */
function install(names: readonly Program[]): void {
  if (process.getuid?.() !== 0) return;
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const options = {
    stdio: ['ignore', 'ignore', 'inherit'] as ['ignore', 'ignore', 'inherit'],
    env,
  };
  const packages = names.map((name) => PACKAGES[name]);
  const wait = ['-o', 'DPkg::Lock::Timeout=300'];
  spawnSync('apt-get', [...wait, 'update', '-qq'], options);
  const flags = ['install', '-y', '-qq', '--no-install-recommends'];
  spawnSync('apt-get', [...wait, ...flags, ...packages], options);
}
