import { type Logger, type PluginContext, repeat } from '@sibyl/plugin-kit';
import type { Reservations } from './ledger/reservations.js';
import type { HoldsAtWork } from './turns/holds-at-work.js';

const PERIOD_MS = 15_000;

interface Kept {
  readonly reservations: Reservations;
  readonly holds: HoldsAtWork;
}

/** Keeps this process's reservations alive, and settles those whose process is gone, now and from time to time. */
export function keepReservations(
  kept: Kept,
  { logger, onClose }: Pick<PluginContext, 'logger' | 'onClose'>,
): void {
  repeat(() => keep(kept, logger), { everyMs: PERIOD_MS, logger, onClose });
}

async function keep({ reservations, holds }: Kept, logger: Logger): Promise<void> {
  await reservations.renew();
  await holds.settleOver();
  const settled = await reservations.settleAbandoned();
  if (settled > 0) logger.info({ settled }, 'settled turns that were cut off');
}
