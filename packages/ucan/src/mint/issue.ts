import { createHash } from 'node:crypto';
import type { Result } from '@sibyl/protocol';
import { type Block, encodeArchiveRoot, encodeCar } from '../codec/archive.js';
import { concat, equalBytes } from '../codec/bytes.js';
import { linkOfDigest } from '../codec/link.js';
import { encodeUcan, SIGNATURE_HEAD, signingBytes, type UcanPayload } from '../codec/ucan-block.js';
import { refuse, type UcanFault } from '../fault.js';
import { readUcan } from '../gate/read-ucan.js';
import type { Signer } from '../keys/signer.js';
import type { MintedToken } from './minted-token.js';

export function blockOf(bytes: Uint8Array): Block {
  return { link: linkOfDigest(createHash('sha256').update(bytes).digest()), bytes };
}

/** Signs a UCAN and archives it with the UCANs it rests on. */
export function issue(
  payload: UcanPayload,
  signer: Signer,
  proofs: readonly Block[],
): Result<MintedToken, UcanFault> {
  const message = signingBytes(payload);
  const signature = concat([SIGNATURE_HEAD, signer.sign(message)]);
  const bytes = encodeUcan(payload, signature);
  if (!bytes) return refuse('mint_invalid', 'issuer or audience is not a DID');
  const block = blockOf(bytes);
  // What the gate would not read must not leave the house: capitals in `can`, lone surrogates, …
  const readable = readUcan(block);
  if (readable.error) return refuse('mint_invalid', readable.error.detail);
  if (!equalBytes(signingBytes(readable.ok), message)) {
    return refuse('mint_invalid', 'would be read as something else than was signed');
  }
  const car = encodeCar(blockOf(encodeArchiveRoot(block.link)), [...proofs, block]);
  return {
    ok: {
      cid: block.link.toString(),
      expiration: payload.expiration ?? Number.POSITIVE_INFINITY,
      token: Buffer.from(car).toString('base64'),
    },
  };
}
