import type { Logger } from 'pino';
import { inTime } from '../agent/calls/in-time.js';

const LIMIT = { ms: 5000, fault: 'it takes too long', signal: new AbortController().signal };

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
      await inTime(LIMIT, async () => run()).catch((err) =>
        this.logger.warn({ err, plugin }, 'plugin did not close well'),
      );
    }
  }
}
