import {
  type ErrorCode,
  errorCatalog,
  type FailedCheck,
  type HostReport,
  type OperatorHost,
  type ReadinessCheck,
  type TurnFailure,
} from '@sibyl/protocol';
import { MODEL_CAUSES, type ModelCause } from '../models/failure-cause.js';
import type { CauseCount } from '../store/operators/turn-reports.js';

const OWN_CAUSES: Readonly<Record<string, string>> = {
  host_lost: 'The host that executed the turn was killed or lost its database',
};

/** What the code of a cause means; an unknown one stays as it is. */
function describeCause(cause: string): string {
  const known = MODEL_CAUSES[cause as ModelCause] ?? OWN_CAUSES[cause];
  return known ?? errorCatalog[cause as ErrorCode]?.[1] ?? cause;
}

export const toFailure = ({ cause, count, lastAt, lastMessage }: CauseCount): TurnFailure => ({
  cause,
  text: describeCause(cause),
  count,
  lastAt: new Date(lastAt).toISOString(),
  ...(lastMessage !== undefined && { lastMessage }),
});

/** What does not work on a host, since when, and why as far as it is known. */
export function findProblems(host: OperatorHost): FailedCheck[] {
  const { hostId, state, updatedAt, readiness } = host;
  if (state === 'lost')
    return [
      { hostId, check: 'lost', text: 'The host has ended or is disconnected', since: updatedAt },
    ];
  // What it reported before the store went away may not be true any more.
  if (state === 'unknown') return [];
  const checks = Object.entries(readiness.checks) as [CheckName, ReadinessCheck][];
  return checks
    .filter(([, { status }]) => status === 'failing')
    .map(([check, { message, since }]) => ({
      hostId,
      check,
      text: [message, explain(check, host)].filter(Boolean).join(': '),
      ...(since !== undefined && { since }),
    }));
}

type CheckName = keyof HostReport['readiness']['checks'];

/** Details that only operators may see. */
function explain(check: CheckName, { modelFailures, storeOutage }: HostReport): string | undefined {
  if (check === 'store') return storeOutage?.reason;
  if (check !== 'model') return undefined;
  const [last] = [...modelFailures].sort((a, b) => b.lastAt.localeCompare(a.lastAt));
  return last && `${last.model}: ${describeCause(last.cause)} (${last.detail})`;
}
