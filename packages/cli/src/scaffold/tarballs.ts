import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { CommandError } from '../command.js';

const NAME = /^sibyl-(.+)-\d+\.\d+\.\d+.*\.tgz$/;

/** Package name → its tarball, as `npm pack` names them. */
export function tarballs(folder: string): Record<string, string> {
  const found = readdirSync(folder).flatMap((file) => {
    const [, name] = NAME.exec(file) ?? [];
    return name ? [[`@sibyl/${name}`, `file:${join(folder, file)}`] as const] : [];
  });
  if (found.length === 0) throw new CommandError(`There are no packages of Sibyl in ${folder}`);
  return Object.fromEntries(found);
}
