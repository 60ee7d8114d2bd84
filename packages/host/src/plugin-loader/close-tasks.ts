import type { Logger } from 'pino';

const PATIENCE_MS = 5000;

interface CloseTask {
  readonly plugin: string;
  readonly run: () => void | Promise<void>;
}

/** What plugins want done when the host closes. */
export class CloseTasks {
  readonly #tasks: CloseTask[] = [];

  constructor(private readonly logger: Logger) {}

  add(task: CloseTask): void {
    this.#tasks.push(task);
  }

  /** Runs them all, the last first; one that fails or hangs keeps no other from its turn. */
  async run(): Promise<void> {
    for (const { plugin, run } of this.#tasks.splice(0).reverse()) {
      let timer: NodeJS.Timeout | undefined;
      const gaveUp = new Promise<never>((_, reject) => {
        timer = setTimeout(reject, PATIENCE_MS, new Error('it takes too long'));
      });
      await Promise.race([Promise.resolve().then(run), gaveUp])
        .catch((err) => this.logger.warn({ err, plugin }, 'plugin did not close well'))
        .finally(() => clearTimeout(timer));
    }
  }
}
