import { existsSync, openAsBlob, readFileSync } from 'node:fs';
import { access, constants, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
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
  if (existsSync('.env')) process.loadEnvFile('.env');
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
  const signer = await openKeyFile(keyFile());
  const client = createOracleClient({ url, signer });
  try {
    const { did, name } = await output.progress('Looking for the oracle', client.card());
    return { client, signer, did, name };
  } catch (cause) {
    if (cause instanceof OracleClientError && cause.retryAfterSeconds !== undefined) throw cause;
    throw new CommandError(
      `No oracle answers at ${url}: start one with "sibyl start", or say where it is`,
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
