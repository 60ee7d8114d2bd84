import { type PluginContext, repeat } from '@sibyl/plugin-kit';
import type { Answers } from './answers.js';
import type { Inbox } from './store/inbox.js';

const PERIOD_MS = 10_000;

interface Kept {
  readonly inbox: Inbox;
  readonly answers: Answers;
}

/** Answers what was left behind or postponed, now and from time to time. */
export function keepInbox(
  kept: Kept,
  { logger, onClose }: Pick<PluginContext, 'logger' | 'onClose'>,
): void {
  // Runs after the last round, which may begin answers: what was registered last is closed first.
  onClose(() => kept.answers.settled());
  repeat(() => keep(kept), { everyMs: PERIOD_MS, logger, onClose });
}

async function keep({ inbox, answers }: Kept): Promise<void> {
  await inbox.renew();
  await answers.takeOver();
  await inbox.forgetOld();
}
