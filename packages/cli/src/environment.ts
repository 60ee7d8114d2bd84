import { randomUUID } from 'node:crypto';
import { createWriteStream, openAsBlob, readFileSync } from 'node:fs';
import { access, constants, realpath, rename, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { parseEnv } from 'node:util';
import {
  createOracleClient,
  type OracleClient,
  OracleClientError,
  type OracleSigner,
} from '@sibyl/client';
import { openKeyFile } from '@sibyl/client/node';
import { CommandError, isAddress } from './command.js';
import type { Output } from './terminal.js';

/** Takes variables of `.env` in this folder, where the environment has none of that name. */
export function loadDotEnv(): void {
  for (const [name, value] of Object.entries(parseEnv(readDotEnv()))) process.env[name] ??= value;
}

function readDotEnv(): string {
  try {
    // Editors of Windows begin files with a byte order mark, which would be part of the first name.
    const text = readFileSync('.env', 'utf8').replace(/^\uFEFF/, '');
    if (!text.includes('\0')) return text;
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code === 'ENOENT') return '';
    throw new CommandError(`Cannot read .env in this folder: ${message}`, { cause });
  }
  throw new CommandError('Cannot read .env in this folder: save it as UTF-8');
}

/** The default address of the oracle: SIBYL_URL, else this machine. */
export function defaultUrl(): string {
  return variable('SIBYL_URL') ?? `http://127.0.0.1:${variable('PORT') ?? 3000}`;
}

/** Where the user's key is: SIBYL_KEY_FILE, else among the user's settings. */
export function keyFile(): string {
  return variable('SIBYL_KEY_FILE') ?? join(settingsFolder(), 'sibyl', 'key');
}

/** Never relative: a key must not end up in the folder where the command happens to run. */
function settingsFolder(): string {
  const settings = variable('XDG_CONFIG_HOME');
  if (settings !== undefined && isAbsolute(settings)) return settings;
  const home = findHome();
  if (isAbsolute(home)) return join(home, '.config');
  throw new CommandError(
    'Cannot find your home folder, where your key is kept: set HOME, or SIBYL_KEY_FILE to the path of the key',
  );
}

function findHome(): string {
  try {
    return homedir();
  } catch {
    return '';
  }
}

/** A variable, unset if empty. */
export const variable = (name: string): string | undefined =>
  process.env[name]?.trim() || undefined;

/** Whether text is styled: on a terminal, unless NO_COLOR is set; FORCE_COLOR decides for pipes, too. */
export function isStyled(): boolean {
  const forced = variable('FORCE_COLOR');
  if (forced !== undefined) return forced !== '0';
  return Boolean(process.stdout.isTTY) && !variable('NO_COLOR') && variable('TERM') !== 'dumb';
}

export function setVariable(name: string, value: string): void {
  process.env[name] = value;
}

/** The version of this command, which all packages of Sibyl share. */
export function readVersion(): string {
  const path = new URL('../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}

/** Loads the host, which has two hundred dependencies, so that only commands that need it require its install. */
export const loadHost = () => explainMissing('@sibyl/host', () => import('@sibyl/host'));

export const loadGateway = () => explainMissing('@sibyl/gateway', () => import('@sibyl/gateway'));

async function explainMissing<T>(name: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const isMissing = code === 'ERR_MODULE_NOT_FOUND' && message.includes(`package '${name}'`);
    if (!isMissing) throw cause;
    throw new CommandError(
      `This command needs the package ${name}. Run "npm install ${name}@${readVersion()}" where sibyl is installed (add -g if it is installed globally).`,
      { cause },
    );
  }
}

/** An oracle, and who is talking to it. */
export interface OpenOracle {
  readonly client: OracleClient;
  readonly signer: OracleSigner;
  /** The oracle's DID. */
  readonly did: string;
  readonly name: string;
}

/** The oracle at an address, as the user of the key file. */
export async function openOracle(given: string | undefined, output: Output): Promise<OpenOracle> {
  const url = given ?? defaultUrl();
  if (!isAddress(url)) {
    throw new CommandError(`"${url}" is not an address such as http://127.0.0.1:3000`);
  }
  const signer = await openSigner();
  const client = createOracleClient({ url, signer });
  try {
    const { did, name } = await output.progress('Looking for the oracle', client.card());
    return { client, signer, did, name };
  } catch (cause) {
    if (cause instanceof OracleClientError && cause.retryAfterSeconds !== undefined) throw cause;
    // Unless nothing is there, what went wrong is the best advice.
    const advice = isRefused(cause)
      ? 'start one with "sibyl start", or say where it is'
      : (cause as Error).message;
    throw new CommandError(`No oracle answers at ${url}: ${advice}`, { cause });
  }
}

/** Whether no program listens at an address. */
function isRefused(error: unknown): boolean {
  const { code, cause } = error as NodeJS.ErrnoException;
  return code === 'ECONNREFUSED' || (cause !== undefined && isRefused(cause));
}

/** The user's signer; says what to do if the key cannot be read or written, as in a home folder that is read-only. */
export async function openSigner(path = keyFile()): Promise<OracleSigner> {
  try {
    return await openKeyFile(path);
  } catch (cause) {
    if (!(cause as NodeJS.ErrnoException).syscall) throw cause;
    const { message } = cause as Error;
    throw new CommandError(
      `Cannot open your key ${path}: ${message}. Set SIBYL_KEY_FILE to a file that you can read and write.`,
      { cause },
    );
  }
}

/** A file to send, which is read as it is sent. */
export async function openFile(path: string): Promise<Blob> {
  const { isFile } = await inspect(path);
  if (!isFile) throw new CommandError(`Cannot read ${path}: it is not a file`);
  return openAsBlob(path);
}

async function inspect(path: string): Promise<{ readonly isFile: boolean }> {
  try {
    await access(path, constants.R_OK);
    return { isFile: (await stat(path)).isFile() };
  } catch (cause) {
    throw new CommandError(`Cannot read ${path}: ${(cause as Error).message}`, { cause });
  }
}

interface SaveOptions {
  /** What is saved, for errors. */
  readonly name: string;
  /** Whether an existing file is replaced. */
  readonly isReplacing?: boolean;
  readonly mode?: number;
}

/** Writes what an oracle sends to a file. If that fails or is interrupted, no part of it is left, and an existing file stays as it was. */
export async function saveBody(
  { body }: Response,
  path: string,
  { name, isReplacing = false, mode = 0o666 }: SaveOptions,
): Promise<void> {
  const existing = isReplacing ? await findExisting(path) : undefined;
  // Devices and pipes are written to, not replaced.
  if (existing?.isFile === false) return writeBody(body, createWriteStream(path), { name });
  const draft = existing ? `${existing.path}.${randomUUID()}` : path;
  const file = createWriteStream(draft, { flags: 'wx', mode });
  await removeOnInterrupt(draft, (signal) => writeBody(body, file, { name, signal }));
  if (existing) await rename(draft, existing.path);
}

/** Writes a new file; removes it if that fails, or a signal ends the command. */
async function removeOnInterrupt(
  path: string,
  write: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const { signal, abort } = listenForInterrupts();
  try {
    await write(signal);
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') throw new CommandError(`${path} exists already: name another file`);
    if (syscall !== 'open') await rm(path, { force: true });
    if (signal.aborted) process.kill(process.pid, signal.reason);
    throw error;
  } finally {
    for (const name of INTERRUPTS) process.off(name, abort);
  }
}

const INTERRUPTS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

function listenForInterrupts() {
  const controller = new AbortController();
  const abort = (name: NodeJS.Signals) => controller.abort(name);
  for (const name of INTERRUPTS) process.once(name, abort);
  return { signal: controller.signal, abort };
}

interface WriteOptions extends Pick<SaveOptions, 'name'> {
  readonly signal?: AbortSignal;
  readonly end?: boolean;
}

/** Writes what an oracle sends to a stream. */
export async function writeBody(
  body: Response['body'],
  target: NodeJS.WritableStream,
  { name, ...options }: WriteOptions,
): Promise<void> {
  try {
    const bytes = Readable.fromWeb((body ?? []) as Parameters<typeof Readable.fromWeb>[0]);
    await pipeline(bytes, target, options);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).syscall) throw cause;
    throw new CommandError(`The ${name} ended before it was complete: try again`, { cause });
  }
}

/** What is at a path, also behind links. */
async function findExisting(path: string) {
  try {
    const real = await realpath(path);
    return { path: real, isFile: (await stat(real)).isFile() };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
