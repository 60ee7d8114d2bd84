import { oncePerSecond } from './once-per-second.js';
import type { Store } from './store.js';
import { classifyStoreFault, type StoreFaultKind } from './store-fault.js';

const TIMEOUT_MS = 2_000;

export type ProbeResult = 'writable' | 'timeout' | 'unknown-error' | StoreFaultKind;

/** Finds out by a real write whether the store accepts writes, without waiting for one that hangs. */
export class WriteProbe {
  private readonly write: () => Promise<ProbeResult>;

  constructor(store: Pick<Store, 'probeWrite'>) {
    this.write = oncePerSecond(() =>
      store.probeWrite().then(
        (): ProbeResult => 'writable',
        (error): ProbeResult => classifyStoreFault(error) ?? 'unknown-error',
      ),
    );
  }

  /** A write that hangs is not repeated: every caller waits for the same one, each for two seconds at most. */
  async check(): Promise<ProbeResult> {
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<ProbeResult>((resolve) => {
      timer = setTimeout(resolve, TIMEOUT_MS, 'timeout');
    });
    return Promise.race([this.write(), timeout]).finally(() => clearTimeout(timer));
  }
}
