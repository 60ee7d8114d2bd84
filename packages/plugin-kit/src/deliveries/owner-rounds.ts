import { type Holder, Places, Rounds } from '@sibyl/server-kit';
import type { Logger } from '../context.js';

/** Users whose DIDs follow one. */
export interface OwnersPage {
  /** Empty for the first page. */
  readonly after: string;
  readonly limit: number;
}

/** Users that one look considers. */
const OWNERS_PER_LOOK = 1_000;

interface OwnerRoundsOptions<Work> {
  /** Work in progress, of all users and of each one. */
  readonly max: number;
  readonly maxPerOwner: number;
  /** As the context of `setup` has it. */
  readonly findHolder: (owner: string) => Promise<Holder>;
  /** Users with work that is due, in the order of their DIDs. */
  readonly listOwners: (page: OwnersPage) => Promise<readonly string[]>;
  /** Claims some of the work of a user. */
  readonly take: (owner: string, limit: number) => Promise<readonly Work[]>;
  readonly run: (work: Work) => Promise<void>;
  /** Describes work that failed in the log. */
  readonly describe: (work: Work) => object;
  readonly logger: Logger;
}

/**
 * Work in the background that waits in a table, in turn by address and user: work that takes long, such as a request to a
 * server that does not answer, holds back little of the others.
 */
export class OwnerRounds<Work> {
  private readonly places: Places;
  private readonly rounds: Rounds;
  private readonly inProgress = new Set<Promise<void>>();
  /** The last user whom the last look has considered; empty if there was none behind. */
  private lookedAt = '';

  constructor(private readonly options: OwnerRoundsOptions<Work>) {
    const { max, maxPerOwner } = options;
    this.places = new Places({ max, maxPerOwner });
    this.rounds = new Rounds({ places: max, sliceMs: 0 });
  }

  /** Starts work that is due, as far as there are places; it continues in the background. */
  async fill(): Promise<void> {
    const { max, findHolder } = this.options;
    if (this.places.size >= max) return;
    const owners = await this.listNextOwners();
    const holders = await Promise.all(owners.map(findHolder));
    for (const holder of this.rounds.sort(holders)) await this.fillFor(holder);
  }

  async close(): Promise<void> {
    await Promise.all(this.inProgress);
  }

  /** Each look continues where the last one ended, so that no number of users with work hides the others. */
  private async listNextOwners(): Promise<readonly string[]> {
    const owners = await this.options.listOwners({ after: this.lookedAt, limit: OWNERS_PER_LOOK });
    const isLastPage = owners.length < OWNERS_PER_LOOK;
    this.lookedAt = isLastPage ? '' : (owners.at(-1) ?? '');
    return owners;
  }

  private async fillFor(holder: Holder): Promise<void> {
    const releases = this.takePlaces(holder);
    if (releases.length === 0) return;
    try {
      const taken = await this.options.take(holder.owner, releases.length);
      this.rounds.record(holder);
      for (const work of taken) this.start(work, releases.pop());
    } finally {
      for (const release of releases) release();
    }
  }

  private takePlaces(holder: Holder): (() => void)[] {
    const releases: (() => void)[] = [];
    for (;;) {
      const { ok: release } = this.places.take(holder);
      if (!release) return releases;
      releases.push(release);
    }
  }

  private start(work: Work, release: (() => void) | undefined): void {
    const { run, describe, logger } = this.options;
    const running = run(work)
      .catch((err) => logger.warn({ err, ...describe(work) }, 'not delivered; trying again'))
      .finally(() => {
        release?.();
        this.inProgress.delete(running);
      });
    this.inProgress.add(running);
  }
}
