import { type ErrorCode, errorCatalog } from '@sibyl/protocol';
import { MODEL_CAUSES, type ModelCause } from '../models/failure-cause.js';

const OWN: Readonly<Record<string, string>> = {
  host_lost: 'The host that executed the turn was killed or lost its database',
};

/** What the code of a cause means; an unknown one stays as it is. */
export function describeCause(cause: string): string {
  const known = MODEL_CAUSES[cause as ModelCause] ?? OWN[cause];
  return known ?? errorCatalog[cause as ErrorCode]?.[1] ?? cause;
}
