import { access, constants, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** What would keep a file from being made in a folder, itself perhaps still to be made; undefined if nothing would. */
export async function obstacleTo(folder: string): Promise<string | undefined> {
  try {
    if (!(await stat(folder)).isDirectory()) return `${folder} is no folder`;
    await access(folder, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const parent = dirname(folder);
    return code === 'ENOENT' && parent !== folder ? obstacleTo(parent) : message;
  }
}
