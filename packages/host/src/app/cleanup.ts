import type { Config } from '../config/config.js';
import type { HostDeps } from './build-host.js';

const HOUR_MS = 60 * 60 * 1000;
/** How often a host looks for erasures to continue. */
const ERASURES_MS = 5_000;

/**
 * Deletes expired rows and frees their space, at once and then every hour; returns a function that stops it and settles
 * once nothing more is written.
 */
export function startCleanup(
  {
    store,
    files,
    logger,
    retention,
    imports,
    erasure,
  }: Pick<HostDeps, 'store' | 'logger'> &
    Partial<Pick<HostDeps, 'retention' | 'imports' | 'erasure'>> & {
      readonly files: Pick<HostDeps['files'], 'sweep'>;
    },
  { turns }: Pick<Config, 'turns'>,
): () => Promise<void> {
  let isStopped = false;
  const steps = [
    () => imports?.sweep(),
    () => store.runs.pruneFrames({ endedBefore: store.now() - turns.logMs }),
    () => store.revocations.prune(),
    () => store.delegations.prune(),
    () => store.idempotency.prune(),
    () => store.singleUse.prune(Math.floor(store.now() / 1000)),
    () => store.modelUsage.prune(),
    () => store.sessions.pruneUnlisted(),
    () => files.sweep(),
    () => retention?.sweep(),
    () => store.reclaim(),
  ];
  const sweep = async () => {
    for (const step of steps) if (!isStopped) await step();
  };
  /** Of several hosts, one does it each hour; but each may have its own folder. */
  const sweepIfDue = async () => {
    const due = Math.floor(store.now() / HOUR_MS) * HOUR_MS;
    if (await store.jobs.take('cleanup', due)) await sweep();
    else await imports?.sweep();
  };
  let sweeping: Promise<void>;
  const report = (work: Promise<void>) => {
    sweeping = work.catch((err) =>
      logger.warn({ err }, 'deleting expired rows failed; next attempt in an hour'),
    );
  };
  const timer = setInterval(() => report(sweepIfDue()), HOUR_MS);
  timer.unref();
  report(sweep());
  const stopErasures = startErasures(erasure);
  return () => {
    isStopped = true;
    clearInterval(timer);
    retention?.close();
    return Promise.all([sweeping, stopErasures()]).then(() => undefined);
  };
}

/** Continues erasures of users that were not completed, at once and then every few seconds; returns as `startCleanup` does. */
function startErasures(erasure: HostDeps['erasure'] | undefined): () => Promise<void> {
  let erasing: Promise<void> | undefined;
  const continueAll = () => {
    // The store logs its outages itself.
    erasing ??= erasure
      ?.continueAll()
      .catch(() => undefined)
      .finally(() => {
        erasing = undefined;
      });
  };
  const timer = setInterval(continueAll, ERASURES_MS);
  timer.unref();
  continueAll();
  return async () => {
    clearInterval(timer);
    await erasing;
  };
}
