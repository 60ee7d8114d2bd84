import type { Health, OracleCard } from '@sibyl/protocol';
import { OracleClientError, toSigningError } from '../errors.js';
import type { OracleSigner } from '../signers/signer.js';

/** A token with less left than this is not used any more. */
const RENEW_BEFORE_SECONDS = 30;

interface CachedToken {
  readonly token: string;
  readonly renewAt: number;
}

/** The token that says who is calling: made when needed, kept until shortly before it expires. */
export class BearerTokens {
  private readonly signer: OracleSigner;
  private readonly discovery: Discovery;
  private kept: Promise<CachedToken> | undefined;

  constructor(signer: OracleSigner, discovery: Discovery) {
    this.signer = signer;
    this.discovery = discovery;
  }

  async get(): Promise<string> {
    const kept = this.keep();
    const { token, renewAt } = await kept;
    if (this.discovery.now() < renewAt) return token;
    this.drop(kept);
    return (await this.keep()).token;
  }

  /** Another token in place of one that was refused: the oracle's DID and clock are asked again. */
  async replace(refused: string): Promise<string> {
    const kept = this.kept;
    if (kept && (await kept).token === refused) {
      await this.discovery.refresh();
      this.drop(kept);
    }
    return this.get();
  }

  private keep(): Promise<CachedToken> {
    this.kept ??= this.mint().catch((error) => {
      this.kept = undefined;
      throw error;
    });
    return this.kept;
  }

  /** Unless somebody else has dropped it already. */
  private drop(kept: Promise<CachedToken>): void {
    if (this.kept === kept) this.kept = undefined;
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

/** Asks a public route. */
type GetPublic = <T>(path: string) => Promise<T>;

/** What must be known of an oracle before a token can be made for it: its DID and its clock. */
export class Discovery {
  private readonly ask: GetPublic;
  private cachedCard: Promise<OracleCard> | undefined;
  /** How far the oracle's clock is ahead of this one. */
  private aheadMs = 0;

  constructor(ask: GetPublic) {
    this.ask = ask;
  }

  card(): Promise<OracleCard> {
    this.cachedCard ??= this.askForCard().catch((error) => {
      this.cachedCard = undefined;
      throw error;
    });
    return this.cachedCard;
  }

  /** Unix seconds, by the oracle's clock as far as it is known. */
  now(): number {
    return Math.floor((Date.now() + this.aheadMs) / 1000);
  }

  /** Asks both again: a token was refused, and a wrong DID or a wrong clock may be why. */
  async refresh(): Promise<void> {
    this.cachedCard = undefined;
    await Promise.all([this.card(), this.readClock()]);
  }

  private async askForCard(): Promise<OracleCard> {
    const card = await this.ask<OracleCard>('/.well-known/oracle.json');
    if (typeof card?.did === 'string' && card.did.startsWith('did:')) return card;
    throw new OracleClientError('invalid_reply', 'This is not an oracle: its card names no DID');
  }

  private async readClock(): Promise<void> {
    const { timestamp } = await this.ask<Health>('/health');
    const aheadMs = Date.parse(timestamp) - Date.now();
    if (Number.isFinite(aheadMs)) this.aheadMs = aheadMs;
  }
}
