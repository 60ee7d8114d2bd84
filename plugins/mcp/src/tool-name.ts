import { createHash } from 'node:crypto';

/** What every provider accepts. */
const LONGEST = 64;
const HASH_LENGTH = 8;

/** `server__tool`, in letters every provider accepts; one that had to be changed ends with a hash of the original. */
export function toolName(server: string, tool: string): string {
  const plain = `${server}__${tool}`;
  const name = plain.replaceAll(/[^A-Za-z0-9_-]/g, '_');
  if (name === plain && name.length <= LONGEST) return name;
  const hash = createHash('sha256').update(plain).digest('hex').slice(0, HASH_LENGTH);
  return `${name.slice(0, LONGEST - HASH_LENGTH - 1)}_${hash}`;
}
