import { type Holder, LruMap, settlesWithin, textBytes } from '@sibyl/server-kit';

/** Long enough that identities are not made for an attack and kept until then. */
export const KNOWN_AFTER_MS = 60 * 60 * 1000;
/** Until a new user is looked up again. */
const FRESH_MS = 10 * 60 * 1000;
/** A store that does not answer delays a request no longer: its user counts as new. */
const LOOKUP_MS = 250;
/** About 20,000 users. */
const MAX_BYTES = 8 * 1024 * 1024;
/** Users of one kind that were not seen at an address, such as those of a chat, share one. */
const METHOD = /^did:[^:]+/;
/** Their users authenticate themselves; those of other methods may be created elsewhere, in any number. */
const OWN_KEYS = /^did:(key|web|ixo):/;

interface HoldersDeps {
  /** Whether a turn of the user ended well before this time, in milliseconds. */
  readonly hasFinishedTurn: (owner: string, before: number) => Promise<boolean>;
  readonly now: () => number;
}

interface Seen {
  /** Undefined for users that were not seen at an address. */
  readonly address: string | undefined;
  readonly isKnown: boolean;
  /** When it was looked up, on the monotonic clock. */
  readonly at: number;
}

/**
 * Where users come from, and whether they are known: what all limits are shared by. A user is known once a turn has ended
 * well more than an hour ago. An import cannot add such turns.
 */
export class Holders {
  private readonly users = new LruMap<string, Seen>({
    maxBytes: MAX_BYTES,
    measure: ({ address = '' }, did) => textBytes(did) + textBytes(address) + 40,
  });

  /** Addresses where known users were seen. */
  private readonly knownAddresses = new LruMap<string, true>({
    maxBytes: MAX_BYTES / 8,
    measure: (_, address) => textBytes(address),
  });

  constructor(private readonly deps: HoldersDeps) {}

  /** Whether a known user was seen at an address. */
  hasKnown(address: string): boolean {
    return this.knownAddresses.get(address) !== undefined;
  }

  /** Asks the store once for a known user, and every ten minutes for a new one. `address` is where the user is now. */
  async find(owner: string, address?: string): Promise<Holder> {
    const seen = this.users.get(owner);
    const isFresh = seen && (seen.isKnown || performance.now() - seen.at < FRESH_MS);
    const isKnown = isFresh ? seen.isKnown : await this.lookUp(owner, address ?? seen?.address);
    if (isFresh && address !== undefined && address !== seen.address)
      this.users.set(owner, { ...seen, address });
    if (isKnown && address !== undefined) this.knownAddresses.set(address, true);
    return { owner, address: address ?? seen?.address ?? toUnseenAddress(owner, isKnown), isKnown };
  }

  private async lookUp(owner: string, address: string | undefined): Promise<boolean> {
    let isKnown = false;
    const { hasFinishedTurn, now } = this.deps;
    const lookup = hasFinishedTurn(owner, now() - KNOWN_AFTER_MS).then(
      (found) => {
        isKnown = found;
        this.users.set(owner, { address, isKnown, at: performance.now() });
      },
      // A store that fails is reported by what needs it.
      () => undefined,
    );
    await settlesWithin(LOOKUP_MS, lookup);
    return isKnown;
  }
}

/** Known users do not suffer from others that were not seen since the host started either. */
function toUnseenAddress(owner: string, isKnown: boolean): string {
  if (isKnown && OWN_KEYS.test(owner)) return owner;
  return METHOD.exec(owner)?.[0] ?? owner;
}
