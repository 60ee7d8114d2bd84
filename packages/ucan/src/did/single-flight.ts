import type { DidResolver } from './did-resolver.js';

/** Lets callers that ask for the same DID at the same time share one resolution. */
export function createSingleFlight(resolve: DidResolver['resolve']): DidResolver['resolve'] {
  const flights = new Map<string, ReturnType<DidResolver['resolve']>>();
  return (did) => {
    const running = flights.get(did);
    if (running) return running;
    const flight = resolve(did).finally(() => flights.delete(did));
    flights.set(did, flight);
    return flight;
  };
}
