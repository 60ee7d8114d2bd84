import type { PluginContext } from './plugin-context.js';

interface Repetition extends Pick<PluginContext, 'onClose'> {
  readonly everyMs: number;
}

/** Does a round of work now and from time to time, never two at once, until the host closes; the work handles its own faults. */
export function repeat(work: () => Promise<void>, { everyMs, onClose }: Repetition): void {
  let underWay = Promise.resolve();
  const round = () => {
    underWay = underWay.then(work);
  };
  round();
  const timer = setInterval(round, everyMs);
  timer.unref();
  onClose(async () => {
    clearInterval(timer);
    await underWay;
  });
}
