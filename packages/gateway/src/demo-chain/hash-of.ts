import { createHash } from 'node:crypto';

/** What stands where a real chain would hash its state: as long, as opaque, and the same at every start. */
export function hashOf(what: string): string {
  return createHash('sha256').update(what).digest('base64');
}
