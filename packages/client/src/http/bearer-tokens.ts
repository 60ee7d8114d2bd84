import type { Health, OracleCard } from '@sibyl/protocol';
import { OracleClientError, toSigningError } from '../errors.js';
import type { OracleSigner } from '../signers/signer.js';

/** Renews a token this long before it expires. */
const RENEW_BEFORE_SECONDS = 30;

interface CachedToken {
  readonly token: string;
  readonly renewAt: number;
}

/** Mints the token that identifies the user, and caches it until shortly before it expires. */
export class BearerTokens {
  private readonly signer: OracleSigner;
  private readonly discovery: Discovery;
  private cached: Promise<CachedToken> | undefined;

  constructor(signer: OracleSigner, discovery: Discovery) {
    this.signer = signer;
    this.discovery = discovery;
  }

  async get(): Promise<string> {
    const cached = this.getOrMint();
    const { token, renewAt } = await cached;
    if (this.discovery.now() < renewAt) return token;
    this.drop(cached);
    return (await this.getOrMint()).token;
  }

  /** Replaces a rejected token after reading the oracle's DID and clock again. */
  async replace(rejected: string): Promise<string> {
    const cached = this.cached;
    if (cached && (await cached).token === rejected) {
      await this.discovery.refresh();
      this.drop(cached);
    }
    return this.get();
  }

  private getOrMint(): Promise<CachedToken> {
    this.cached ??= this.mint().catch((error) => {
      this.cached = undefined;
      throw error;
    });
    return this.cached;
  }

  /** Does nothing if another request has already dropped it. */
  private drop(cached: Promise<CachedToken>): void {
    if (this.cached === cached) this.cached = undefined;
  }

  private async mint(): Promise<CachedToken> {
    const { did: audience } = await this.discovery.card();
    const now = this.discovery.now();
    const { token, expiration } = await this.signer.invoke({ audience, now }).catch((cause) => {
      throw toSigningError(cause);
    });
    return { token, renewAt: expiration - RENEW_BEFORE_SECONDS };
  }
}

type GetPublic = <T>(path: string, signal: AbortSignal) => Promise<T>;

/** Every call waits for what is read here, and some platforms wait for a silent host for minutes. */
const DISCOVERY_TIMEOUT_SECONDS = 15;

/** Finds out the oracle's DID and clock, which a token depends on. */
export class Discovery {
  private readonly getPublic: GetPublic;
  private cachedCard: Promise<OracleCard> | undefined;
  /** How far the oracle's clock is ahead of this device's. */
  private clockOffsetMs = 0;

  constructor(getPublic: GetPublic) {
    this.getPublic = getPublic;
  }

  card(): Promise<OracleCard> {
    this.cachedCard ??= this.fetchCard().catch((error) => {
      this.cachedCard = undefined;
      throw error;
    });
    return this.cachedCard;
  }

  /** Unix seconds by the oracle's clock, if it is known. */
  now(): number {
    return Math.floor((Date.now() + this.clockOffsetMs) / 1000);
  }

  /** Reads both again, since a wrong DID or clock may be the reason for a rejected token. */
  async refresh(): Promise<void> {
    this.cachedCard = undefined;
    await Promise.all([this.card(), this.readClock()]);
  }

  private async read<T>(path: string): Promise<T> {
    const signal = AbortSignal.timeout(DISCOVERY_TIMEOUT_SECONDS * 1000);
    try {
      return await this.getPublic<T>(path, signal);
    } catch (cause) {
      if (cause !== signal.reason) throw cause;
      const message = `The oracle did not answer within ${DISCOVERY_TIMEOUT_SECONDS} seconds`;
      throw new OracleClientError('network_error', message, { cause });
    }
  }

  private async fetchCard(): Promise<OracleCard> {
    const card = await this.read<OracleCard>('/.well-known/oracle.json');
    if (typeof card?.did === 'string' && card.did.startsWith('did:')) return card;
    throw new OracleClientError(
      'invalid_reply',
      'Not an oracle: /.well-known/oracle.json contains no DID',
    );
  }

  private async readClock(): Promise<void> {
    const { timestamp } = await this.read<Health>('/health');
    const clockOffsetMs = Date.parse(timestamp) - Date.now();
    if (Number.isFinite(clockOffsetMs)) this.clockOffsetMs = clockOffsetMs;
  }
}
