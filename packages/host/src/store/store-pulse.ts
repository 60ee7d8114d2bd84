import type { Store } from './store.js';

const PATIENCE_MS = 2000;

/** Tells whether the store answers, without waiting for one that hangs. */
export class StorePulse {
  constructor(private readonly store: Pick<Store, 'ping'>) {}

  async isAlive(): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const gaveUp = new Promise<boolean>((resolve) => {
      timer = setTimeout(resolve, PATIENCE_MS, false);
    });
    const answered = this.store.ping().then(
      () => true,
      () => false,
    );
    return Promise.race([answered, gaveUp]).finally(() => clearTimeout(timer));
  }
}
