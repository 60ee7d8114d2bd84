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
  private readonly listeners = new Map<string, Set<() => void>>();
  private timer: NodeJS.Timeout | undefined;

  constructor(options: AccessWatchOptions) {
    this.options = options;
    options.bus.onMissed(() => void this.check());
  }

  /** Calls back when one of the ids loses access; returns a function that stops watching. */
  watch(ids: readonly string[], onEnded: () => void): () => void {
    for (const id of ids)
      this.listeners.set(id, (this.listeners.get(id) ?? new Set()).add(onEnded));
    this.arm();
    return () => {
      for (const id of ids) {
        const listeners = this.listeners.get(id);
        listeners?.delete(onEnded);
        if (listeners?.size === 0) this.listeners.delete(id);
      }
    };
  }

  /** Calls the listeners of an id that has lost access. */
  end(id: string): void {
    for (const onEnded of [...(this.listeners.get(id) ?? [])]) onEnded();
  }

  private arm(): void {
    if (this.listeners.size > 0)
      this.timer ??= setTimeout(() => void this.check(), INTERVAL_MS).unref();
  }

  private async check(): Promise<void> {
    clearTimeout(this.timer);
    const { findEnded, onEnded, logger } = this.options;
    try {
      const ids = [...this.listeners.keys()];
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
