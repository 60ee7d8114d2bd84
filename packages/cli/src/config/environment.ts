import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

/** Takes variables of `.env` in this folder, where the environment has none of that name. */
export function loadDotEnv(): void {
  if (existsSync('.env')) process.loadEnvFile('.env');
}

/** Where the oracle is unless a command is told: SIBYL_URL, else on this machine. */
export function defaultUrl(): string {
  return process.env.SIBYL_URL ?? `http://127.0.0.1:${process.env.PORT ?? 3000}`;
}

/** Where the user's key is: SIBYL_KEY_FILE, else among the user's settings. */
export function keyFile(): string {
  const settings = process.env.XDG_CONFIG_HOME ?? join(homedir(), '.config');
  return process.env.SIBYL_KEY_FILE ?? join(settings, 'sibyl', 'key');
}

/** A variable, unset if empty. */
export const variable = (name: string): string | undefined =>
  process.env[name]?.trim() || undefined;

export function setVariable(name: string, value: string): void {
  process.env[name] = value;
}
