import { refuseDid } from './did-fault.js';
import type { DidResolver } from './did-resolver.js';

/** Lookups one resolver has in progress at most by default: each holds a connection to a host that a stranger chose. */
const MAX_PENDING = 50;

/** Lets callers that ask for the same DID at the same time share one resolution. */
export function createSingleFlight(
  resolve: DidResolver['resolve'],
  maxPending = MAX_PENDING,
): DidResolver['resolve'] {
  const flights = new Map<string, ReturnType<DidResolver['resolve']>>();
  return (did) => {
    const running = flights.get(did);
    if (running) return running;
    if (flights.size >= maxPending) {
      return Promise.resolve(refuseDid('did_busy', `${maxPending} lookups are in progress`));
    }
    const flight = resolve(did).finally(() => flights.delete(did));
    flights.set(did, flight);
    return flight;
  };
}
