import { Listeners } from '@sibyl/server-kit';
import type { Logger } from 'pino';
import type { HostBus } from '../bus/host-bus.js';

/** How long it takes at most to find changes of other processes that no message reported. */
const INTERVAL_MS = 3000;
/** Ids in one query. */
const BATCH = 200;

interface AccessWatchOptions {
  /** Returns those of the given ids that have lost access. */
  readonly findEnded: (ids: readonly string[]) => Promise<readonly string[]>;
  /** Called for each of them. */
  readonly onEnded: (id: string) => void;
  readonly bus: Pick<HostBus, 'onMissed'>;
  readonly logger: Logger;
}

/** Watches the callers or tokens of open sockets and running turns, with few queries even for many. */
export class AccessWatch {
  private readonly options: AccessWatchOptions;
  /** At most as many entries as open sockets and running turns, whose numbers are limited. */
  private readonly listeners = new Listeners<string>();
  private timer: NodeJS.Timeout | undefined;

  constructor(options: AccessWatchOptions) {
    this.options = options;
    options.bus.onMissed(() => void this.check());
  }

  /** Calls back when one of the ids loses access; returns a function that stops watching. */
  watch(ids: readonly string[], onEnded: () => void): () => void {
    const stops = ids.map((id) => this.listeners.add(id, onEnded));
    this.arm();
    return () => {
      for (const stop of stops) stop();
    };
  }

  /** Calls the listeners of an id that has lost access. */
  end(id: string): void {
    this.listeners.call(id);
  }

  private arm(): void {
    if (this.listeners.size > 0)
      this.timer ??= setTimeout(() => void this.check(), INTERVAL_MS).unref();
  }

  private async check(): Promise<void> {
    clearTimeout(this.timer);
    const { findEnded, onEnded, logger } = this.options;
    try {
      const ids = this.listeners.list();
      for (let at = 0; at < ids.length; at += BATCH)
        for (const id of await findEnded(ids.slice(at, at + BATCH))) onEnded(id);
    } catch (err) {
      logger.warn(
        { reason: String(err) },
        'cannot check whether sockets and turns have lost access',
      );
    }
    this.timer = undefined;
    this.arm();
  }
}
