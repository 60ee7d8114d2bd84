import type { OracleSigner } from '../signer/oracle-signer.js';
import { signingError } from '../signer/signing-error.js';
import type { Discovery } from './discovery.js';

/** A token with less left than this is not used any more. */
const RENEW_BEFORE_SECONDS = 30;

interface KeptToken {
  readonly token: string;
  readonly renewAt: number;
}

/** The token that says who is calling: made when needed, kept until shortly before it expires. */
export class Bearer {
  readonly #signer: OracleSigner;
  readonly #discovery: Discovery;
  #kept: Promise<KeptToken> | undefined;

  constructor(signer: OracleSigner, discovery: Discovery) {
    this.#signer = signer;
    this.#discovery = discovery;
  }

  async token(): Promise<string> {
    const kept = this.#keep();
    const { token, renewAt } = await kept;
    if (this.#discovery.now() < renewAt) return token;
    this.#drop(kept);
    return (await this.#keep()).token;
  }

  /** Another token in place of one that was refused: the oracle's DID and clock are asked again. */
  async replace(refused: string): Promise<string> {
    const kept = this.#kept;
    if (kept && (await kept).token === refused) {
      await this.#discovery.refresh();
      this.#drop(kept);
    }
    return this.token();
  }

  #keep(): Promise<KeptToken> {
    this.#kept ??= this.#mint().catch((error) => {
      this.#kept = undefined;
      throw error;
    });
    return this.#kept;
  }

  /** Unless somebody else has dropped it already. */
  #drop(kept: Promise<KeptToken>): void {
    if (this.#kept === kept) this.#kept = undefined;
  }

  async #mint(): Promise<KeptToken> {
    const { did: audience } = await this.#discovery.card();
    const now = this.#discovery.now();
    const { token, expiration } = await this.#signer.invoke({ audience, now }).catch((cause) => {
      throw signingError(cause);
    });
    return { token, renewAt: expiration - RENEW_BEFORE_SECONDS };
  }
}
