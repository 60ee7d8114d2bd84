import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { findFreePort } from '../packages/host/test/support/free-port.ts';
import { buildIfChanged } from './build.ts';

/** The exit code of a check that cannot run here; it has printed why. */
export const SKIPPED = 77;

/** A package from PyPI in a separate environment. */
export interface PythonPackage {
  readonly name: string;
  readonly version: string;
  /** Optional parts to install. */
  readonly extras?: readonly string[];
}

/** Packages from npm in a separate folder. */
export interface NodePackage {
  readonly name: string;
  readonly version: string;
  /** What is installed beside it. */
  readonly more: readonly string[];
}

/** The folder of the environment. */
export const getVenv = ({ name, version }: Pick<PythonPackage, 'name' | 'version'>) =>
  `node_modules/.cache/sibyl/${name}-${version}`;

/** Installs the pinned version once; returns the reason if that fails. */
export function installPython(wanted: PythonPackage): string | undefined {
  const venv = getVenv(wanted);
  const { name, version, extras } = wanted;
  const parts = extras ? `[${extras.join()}]` : '';
  return installOnce(venv, [
    ['python3', '-m', 'venv', venv],
    [`${venv}/bin/pip`, 'install', '--quiet', `${name}${parts}==${version}`],
  ]);
}

/**
 * Installs the packages of a folder outside the workspaces, exactly as its lock file says, when that has changed; throws if
 * that fails. Root scripts and `npx` find the programs of the folder afterwards.
 */
export function installLocked(folder: string): void {
  const lock = readFileSync(join(folder, 'package-lock.json'), 'utf8');
  const modules = join(folder, 'node_modules');
  if (!isInstalled(modules, lock)) {
    const args = ['ci', '--no-progress', '--no-audit', '--no-fund', '--loglevel=error'];
    const { status, error, stderr } = spawnSync('npm', args, { cwd: folder, encoding: 'utf8' });
    if (status !== 0)
      throw new Error(`"npm ci" in ${folder} failed: ${error?.message ?? stderr.trim()}`);
    writeFileSync(join(modules, '.installed-lock'), lock);
  }
  // Also if nothing was installed: `npm ci` of the root removes the links.
  linkPrograms(join(modules, '.bin'), join(ROOT, 'node_modules/.bin'));
}

const ROOT = join(import.meta.dirname, '..');

function isInstalled(modules: string, lock: string): boolean {
  const copy = join(modules, '.installed-lock');
  if (!existsSync(copy) || readFileSync(copy, 'utf8') !== lock) return false;
  const { devDependencies } = JSON.parse(lock).packages[''];
  return Object.keys(devDependencies).every((name) => existsSync(join(modules, name)));
}

function linkPrograms(from: string, to: string): void {
  for (const name of existsSync(from) ? readdirSync(from) : []) {
    const link = join(to, name);
    // A program of the root, such as its compiler, stays.
    if (existsSync(link)) continue;
    rmSync(link, { force: true });
    symlinkSync(relative(to, resolve(from, name)), link);
  }
}

/** Installs the pinned versions once; returns the reason if that fails. */
export function installNode({ name, version, more }: NodePackage): string | undefined {
  const folder = getVenv({ name, version });
  const packages = [`${name}@${version}`, ...more];
  return installOnce(folder, [
    ['mkdir', '-p', folder],
    ['npm', 'install', '--silent', '--no-audit', '--no-fund', '--prefix', folder, ...packages],
  ]);
}

/** A program of a Go module. */
export interface GoProgram {
  readonly name: string;
  readonly version: string;
  readonly module: string;
}

/** Compiles the pinned version once; returns the reason if that fails. */
export function installGo({ name, version, module }: GoProgram): string | undefined {
  const folder = getVenv({ name, version });
  return installOnce(folder, [
    ['mkdir', '-p', folder],
    ['env', `GOBIN=${resolve(folder)}`, 'go', 'install', `${module}@v${version}`],
  ]);
}

function installOnce(folder: string, steps: readonly (readonly string[])[]): string | undefined {
  if (existsSync(join(folder, 'installed'))) return undefined;
  for (const [command = '', ...args] of [...steps, ['touch', join(folder, 'installed')]]) {
    const { status, error, stderr } = spawnSync(command, args, { encoding: 'utf8' });
    if (status === 0) continue;
    const cause = error?.message ?? stderr.trim().split('\n').at(-1);
    return `"${[command, ...args].join(' ')}" failed: ${cause}`;
  }
  return undefined;
}

/** What a check with a program of others has at its disposal. */
export interface CheckContext {
  /** A new folder, deleted at the end. */
  readonly folder: string;
  /** What to stop or close at the end, in reverse order. */
  readonly started: (() => unknown)[];
}

/**
 * Installs a package, builds this project if it has changed, and runs a check.
 * Returns the exit code: 0 passed, 1 failed, 77 skipped with the reason on the last line.
 */
export async function runCheck(
  title: string,
  wanted: PythonPackage,
  check: (context: CheckContext) => Promise<void>,
): Promise<number> {
  const reason = installPython(wanted);
  if (reason) {
    console.log(`${title} skipped: ${reason}`);
    return SKIPPED;
  }
  const failure = await buildIfChanged();
  if (failure) return failure;
  const folder = mkdtempSync(join(tmpdir(), `sibyl-${wanted.name}-`));
  const started: (() => unknown)[] = [() => rmSync(folder, { recursive: true, force: true })];
  try {
    await check({ folder, started });
    return 0;
  } catch (error) {
    console.log(error);
    return 1;
  } finally {
    for (const stop of started.reverse()) await stop();
  }
}

/** Starts a program of others on a free port, and waits until its address answers. */
export async function startForeign(
  { started }: Pick<CheckContext, 'started'>,
  { command, args, cwd, path }: ForeignProgram,
): Promise<ForeignService> {
  const port = await findFreePort();
  const child = spawn(command, await args(port), { stdio: 'ignore', ...(cwd && { cwd }) });
  const ended = once(child, 'close');
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  started.push(stop);
  const url = `http://127.0.0.1:${port}`;
  await waitFor(command, async () => (await fetch(`${url}${path}`)).status < 500);
  return { url, child, stop };
}

interface ForeignProgram {
  readonly command: string;
  readonly args: (port: number) => readonly string[] | Promise<readonly string[]>;
  readonly cwd?: string;
  /** Answers once the program is ready. */
  readonly path: string;
}

interface ForeignService extends Service {
  readonly child: ChildProcess;
}

const TIMEOUT_MS = 180_000;

/** Waits for a condition; one that throws is not met. */
export async function waitFor(what: string, isMet: () => Promise<boolean>): Promise<void> {
  for (const deadline = performance.now() + TIMEOUT_MS; performance.now() < deadline; ) {
    if (await isMet().catch(() => false)) return;
    await delay(300);
  }
  throw new Error(`${what}: not within ${TIMEOUT_MS / 1000} s`);
}

/** A new user of a host: sends signed requests. */
export async function createUser(url: string) {
  const { generateSigner, mintAuthInvocation, mintDelegation } = await import('@sibyl/ucan');
  const card = await (await fetch(`${url}/.well-known/oracle.json`)).json();
  const { did: audience } = card as { did: string };
  const signer = generateSigner();
  const { ok } = mintAuthInvocation({ signer, audience, ttlSeconds: 900 });
  const headers = { authorization: `Bearer ${ok?.token}`, 'x-auth-type': 'ucan' };
  // biome-ignore lint/suspicious/noExplicitAny: the assertions state what is expected.
  const send = async (method: string, path: string, body?: object): Promise<any> => {
    const json = { ...headers, 'content-type': 'application/json' };
    const init = { method, headers: json, ...(body && { body: JSON.stringify(body) }) };
    return (await fetch(url + path, init)).json();
  };
  /** Sends a message in a new session. */
  const ask = async (message: string, more: object = {}) => {
    const { sessionId } = await send('POST', '/sessions', {});
    return send('POST', `/messages/${sessionId}`, { message, ...more });
  };
  const delegate = (can: string, resource: string) =>
    mintDelegation({
      signer,
      audience,
      capabilities: [{ can, with: `ixo:oracle:${audience}:${resource}` }],
      expiration: Math.floor(Date.now() / 1000) + 900,
    }).ok?.token;
  return { did: signer.did, headers, send, ask, delegate };
}

/** A process that listens on an address. */
export interface Service {
  readonly url: string;
  stop(): Promise<void>;
}

/** Starts a program of this project, and waits until it listens. */
export async function startService(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Service> {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(process.execPath, args, {
    env: { PATH, HOME, LOG_LEVEL: 'info', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close');
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return { url: await readAddress(child, ended), stop };
}

async function readAddress(child: ChildProcess, ended: Promise<unknown>): Promise<string> {
  let output = '';
  child.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
    output = `${output}${chunk}`.slice(-65_536);
  });
  for (;;) {
    const [, url] = /listening on (http:[^\s",]+)/.exec(output) ?? [];
    if (url) return url;
    if (child.exitCode !== null) throw new Error(`The process did not start:\n${output}`);
    await Promise.race([once(child.stdout ?? child, 'data'), ended]);
  }
}

if (import.meta.main) for (const folder of process.argv.slice(2)) installLocked(folder);
