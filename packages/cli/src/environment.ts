import { existsSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';
import { CommandError } from './command.js';

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
