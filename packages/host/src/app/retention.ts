import { systemClock } from '@sibyl/ucan';
import type { Config } from '../config/config.js';
import type { HostParts } from './build-host.js';

const HOUR_MS = 60 * 60 * 1000;

/** Forgets what has expired and gives its space back, at the start and once an hour; returns how to stop. */
export function keepHouse(
  { store, logger }: Pick<HostParts, 'store' | 'logger'>,
  { turns }: Pick<Config, 'turns'>,
): () => void {
  const sweep = async () => {
    await store.runs.pruneFrames({ endedBefore: Date.now() - turns.logMs });
    await store.revocations.prune();
    await store.delegations.prune();
    await store.idempotency.prune();
    await store.singleUse.prune(systemClock());
    await store.modelUsage.prune();
    await store.reclaim();
  };
  const sweepAndTell = () => {
    sweep().catch((err) => logger.warn({ err }, 'housekeeping failed; trying again in an hour'));
  };
  const timer = setInterval(sweepAndTell, HOUR_MS);
  timer.unref();
  sweepAndTell();
  return () => clearInterval(timer);
}
