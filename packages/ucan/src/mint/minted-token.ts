/** A token signed here. */
export interface MintedToken {
  readonly cid: string;
  /** Unix seconds; Infinity if the token never expires. */
  readonly expiration: number;
  /** Base64 of the archive, proofs included (contract B8). */
  readonly token: string;
}
