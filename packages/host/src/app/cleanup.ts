import { systemClock } from '@sibyl/ucan';
import type { Config } from '../config/config.js';
import type { HostDeps } from './build-host.js';

const HOUR_MS = 60 * 60 * 1000;

/** Deletes expired rows and frees their space, at once and then every hour; returns a function that stops it. */
export function startCleanup(
  {
    store,
    files,
    logger,
    retention,
  }: Pick<HostDeps, 'store' | 'logger'> &
    Partial<Pick<HostDeps, 'retention'>> & { readonly files: Pick<HostDeps['files'], 'sweep'> },
  { turns }: Pick<Config, 'turns'>,
): () => void {
  const sweep = async () => {
    await store.runs.pruneFrames({ endedBefore: Date.now() - turns.logMs });
    await store.revocations.prune();
    await store.delegations.prune();
    await store.idempotency.prune();
    await store.singleUse.prune(systemClock());
    await store.modelUsage.prune();
    await store.sessions.pruneUnlisted();
    await files.sweep();
    await retention?.sweep();
    await store.reclaim();
  };
  /** Of several hosts, one does it each hour. */
  const sweepIfDue = async () => {
    const due = Math.floor(Date.now() / HOUR_MS) * HOUR_MS;
    if (await store.jobs.take('cleanup', due)) await sweep();
  };
  const report = (work: Promise<void>) => {
    work.catch((err) =>
      logger.warn({ err }, 'deleting expired rows failed; next attempt in an hour'),
    );
  };
  const timer = setInterval(() => report(sweepIfDue()), HOUR_MS);
  timer.unref();
  report(sweep());
  return () => {
    clearInterval(timer);
    retention?.close();
  };
}
