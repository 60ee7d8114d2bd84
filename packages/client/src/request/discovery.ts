import type { Health, OracleCard } from '@sibyl/protocol';
import { OracleClientError } from '../oracle-client-error.js';

/** Asks a public route. */
export type Ask = <T>(path: string) => Promise<T>;

/** What must be known of an oracle before a token can be made for it: its DID and its clock. */
export class Discovery {
  readonly #ask: Ask;
  #card: Promise<OracleCard> | undefined;
  /** How far the oracle's clock is ahead of this one. */
  #aheadMs = 0;

  constructor(ask: Ask) {
    this.#ask = ask;
  }

  card(): Promise<OracleCard> {
    this.#card ??= this.#askForCard().catch((error) => {
      this.#card = undefined;
      throw error;
    });
    return this.#card;
  }

  /** Unix seconds, by the oracle's clock as far as it is known. */
  now(): number {
    return Math.floor((Date.now() + this.#aheadMs) / 1000);
  }

  /** Asks both again: a token was refused, and a wrong DID or a wrong clock may be why. */
  async refresh(): Promise<void> {
    this.#card = undefined;
    await Promise.all([this.card(), this.#readClock()]);
  }

  async #askForCard(): Promise<OracleCard> {
    const card = await this.#ask<OracleCard>('/.well-known/oracle.json');
    if (typeof card?.did === 'string' && card.did.startsWith('did:')) return card;
    throw new OracleClientError('invalid_reply', 'This is not an oracle: its card names no DID');
  }

  async #readClock(): Promise<void> {
    const { timestamp } = await this.#ask<Health>('/health');
    const aheadMs = Date.parse(timestamp) - Date.now();
    if (Number.isFinite(aheadMs)) this.#aheadMs = aheadMs;
  }
}
