import { OracleError } from '@sibyl/protocol';
import type { UserList } from '../store/operators/operator-store.js';
import type { Caller } from './caller.js';

/** How long the stored list is used: a change by another process takes effect within this time. */
const FRESH_MS = 3_000;

interface OperatorsOptions {
  /** OPERATORS. */
  readonly listed: readonly string[];
  /** Those that `sibyl operators` added. */
  readonly stored: Pick<UserList, 'list'>;
}

/** Who may use the routes of operators. */
export class Operators {
  private readonly listed: ReadonlySet<string>;
  private added: ReadonlySet<string> = new Set();
  private readAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly options: OperatorsOptions) {
    this.listed = new Set(options.listed);
  }

  /**
   * Throws for everyone else, with an error that says nothing. A delegation or an access key is not enough: services and
   * programs that received it could use it.
   */
  async assertOperator({ did, login, accessKey }: Caller): Promise<void> {
    if (login || accessKey || !(await this.has(did))) throw new OracleError('forbidden');
  }

  /** An operator of the environment can see what is wrong even while the store does not answer. */
  private async has(did: string): Promise<boolean> {
    if (this.listed.has(did)) return true;
    if (performance.now() - this.readAt >= FRESH_MS) {
      const since = performance.now();
      this.added = new Set((await this.options.stored.list()).map((each) => each.did));
      this.readAt = since;
    }
    return this.added.has(did);
  }
}
