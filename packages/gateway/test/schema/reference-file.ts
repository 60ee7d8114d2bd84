import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const besideCheckout = fileURLToPath(new URL('../../../../..', import.meta.url));

/**
 * Facts about a real chain that are not part of this project: JSON from `GATEWAY_REFERENCE_DIR` or from a
 * folder beside the checkout; undefined if there is none.
 */
export function referenceFile<T>(name: string): T | undefined {
  const folders = process.env.GATEWAY_REFERENCE_DIR
    ? [process.env.GATEWAY_REFERENCE_DIR]
    : readdirSync(besideCheckout).map((folder) => join(besideCheckout, folder));
  const path = folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
  return path === undefined ? undefined : (JSON.parse(readFileSync(path, 'utf8')) as T);
}
