import type { PluginContext } from './context.js';

interface Repetition extends Pick<PluginContext, 'logger' | 'onClose'> {
  readonly everyMs: number;
}

/** Does a round of work now and from time to time, never two at once, until the host closes; a round that fails is logged. */
export function repeat(work: () => Promise<void>, { everyMs, logger, onClose }: Repetition): void {
  let underWay = Promise.resolve();
  const round = () => {
    underWay = underWay
      .then(work)
      .catch((err) => logger.warn({ err }, 'a round failed; trying again with the next'));
  };
  round();
  const timer = setInterval(round, everyMs);
  timer.unref();
  onClose(async () => {
    clearInterval(timer);
    await underWay;
  });
}
