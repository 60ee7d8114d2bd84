import { readFileSync } from 'node:fs';

/** The version of this command, which all packages of Sibyl share. */
export function ownVersion(): string {
  const path = new URL('../package.json', import.meta.url);
  return JSON.parse(readFileSync(path, 'utf8')).version;
}
