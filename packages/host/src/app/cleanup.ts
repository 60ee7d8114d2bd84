import type { Config } from '../config/config.js';
import type { Services } from './services.js';

const HOUR_MS = 60 * 60 * 1000;
/** How often a host looks for erasures to continue, and whether the disk is almost full. */
const LOOK_MS = 5_000;

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
  }: Pick<Services, 'store' | 'logger'> &
    Partial<Pick<Services, 'retention' | 'imports' | 'erasure'>> & {
      readonly files: Pick<Services['files'], 'sweep'>;
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
    async () => store.reclaim((await store.disk?.isShort()) ? 'kept' : 'emptied'),
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
  // The store logs its outages itself.
  const stopErasures = repeat(async () => erasure?.continueAll().catch(() => undefined));
  const stopFreeing = repeat(() =>
    freeSpace(store).catch((err) => logger.warn({ err }, 'no disk space was freed; trying again')),
  );
  return () => {
    isStopped = true;
    clearInterval(timer);
    retention?.close();
    return Promise.all([sweeping, stopErasures(), stopFreeing()]).then(() => undefined);
  };
}

/** While space is short, what was deleted gives its own back at once. */
async function freeSpace({ disk, reclaim }: Pick<Services['store'], 'disk' | 'reclaim'>) {
  if (await disk?.isShort()) await reclaim('kept');
  await disk?.createBallast();
}

/** At once and then every few seconds, but never twice at a time; returns as `startCleanup` does. */
function repeat(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  const start = () => {
    running ??= work().finally(() => {
      running = undefined;
    });
  };
  const timer = setInterval(start, LOOK_MS);
  timer.unref();
  start();
  return async () => {
    clearInterval(timer);
    await running;
  };
}
