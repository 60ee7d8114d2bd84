import type { Logger } from 'pino';
import type { EventBus } from '../../events/event-bus.js';
import { endOf } from '../../events/position.js';
import type { RunStore } from '../../store/runs/run-store.js';
import { cacheInvalidation } from './cache-invalidation.js';
import { endInterrupted } from './interrupted-run.js';

/** Well within the 30 s after which another process takes this one for dead. */
const BEAT_MS = 10_000;

/** Closes what dead processes left running, now and again, and tells others that this one lives. */
export async function keepRuns(
  runs: RunStore,
  events: EventBus,
  logger: Logger,
): Promise<() => void> {
  const closeLeftovers = async () => {
    for (const { run } of await runs.closeInterrupted(endInterrupted)) {
      logger.warn({ runId: run.id, did: run.owner }, 'run closed as interrupted');
      const { event, data: payload } = cacheInvalidation(run, run.messageId);
      events.publish(run, { event, payload, position: endOf(run.turn) });
    }
  };
  const beat = async () => {
    await runs.renewLeases();
    await closeLeftovers();
  };
  await closeLeftovers();
  const timer = setInterval(() => {
    // Without a stack: the store reports its outages itself.
    beat().catch((error) => {
      logger.warn({ reason: String(error) }, 'leases not renewed; trying again');
    });
  }, BEAT_MS);
  timer.unref();
  return () => clearInterval(timer);
}
