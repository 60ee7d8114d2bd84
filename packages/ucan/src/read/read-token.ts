import type { Result } from '@sibyl/protocol';
import { type Block, LIMITS, type Token, type Ucan } from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';
import { readArchiveRoot, readCar } from './read-car.js';
import { readUcan } from './read-ucan.js';

/** Reads a token strictly, cheapest check first, so that no library receives hostile bytes. */
export function readToken(token: unknown): Result<Token, UcanError> {
  const bytes = readBase64(token);
  if (bytes.error) return bytes;
  const car = readCar(bytes.ok);
  if (car.error) return car;
  const link = readArchiveRoot(car.ok.root);
  if (link.error) return link;
  const ucans = readUcans(car.ok.blocks);
  if (ucans.error) return ucans;
  const root = ucans.ok.get(link.ok.toString());
  if (!root) return refuse('proof_missing', `the UCAN ${link.ok} is not in the archive`);
  const error = checkShape(root, ucans.ok);
  if (error) return { error: named(error, root) };
  return { ok: { text: token as string, root, ucans: ucans.ok } };
}

function readUcans(
  blocks: ReadonlyMap<string, Block>,
): Result<ReadonlyMap<string, Ucan>, UcanError> {
  const ucans = new Map<string, Ucan>();
  for (const [cid, block] of blocks) {
    const ucan = readUcan(block);
    if (ucan.error) return { error: { ...ucan.error, cid } };
    ucans.set(cid, ucan.ok);
  }
  return { ok: ucans };
}

/** Adds to an error which UCAN it is about and who issued it. */
export function named(error: UcanError, ucan: Ucan): UcanError {
  return { cid: ucan.cid, issuer: ucan.issuer, ...error };
}

/** Standard padded base64 in its only spelling: what it decodes to encodes to the same text. */
function readBase64(token: unknown): Result<Uint8Array, UcanError> {
  if (typeof token !== 'string') return refuse('token_not_string', `a ${typeof token}`);
  if (token.length > LIMITS.characters) {
    return refuse('token_too_long', `${token.length} characters`);
  }
  // The decoder passes over foreign characters and missing padding; the way back shows them.
  const bytes = Buffer.from(token, 'base64');
  if (bytes.toString('base64') !== token) return refuse('base64_invalid', 'not canonical');
  return { ok: bytes };
}

/** Checks the size and the links of a chain; a UCAN is visited once a layer, however many link to it. */
function checkShape(root: Ucan, ucans: ReadonlyMap<string, Ucan>): UcanError | undefined {
  if (ucans.size > LIMITS.ucans) return refuse('too_many_ucans', `${ucans.size} UCANs`).error;
  const seen = new Set<string>();
  let layer: readonly Ucan[] = [root];
  for (let depth = 1; layer.length > 0; depth += 1) {
    if (depth > LIMITS.depth) return refuse('too_deep', `over ${LIMITS.depth} layers`).error;
    const next: Ucan[] = [];
    for (const ucan of layer) {
      seen.add(ucan.cid);
      const error = collectProofs(ucan, ucans, next);
      if (error) return error;
    }
    layer = [...new Set(next)];
  }
  return seen.size < ucans.size
    ? refuse('block_unreachable', `${ucans.size - seen.size} blocks`).error
    : undefined;
}

function collectProofs(
  ucan: Ucan,
  ucans: ReadonlyMap<string, Ucan>,
  into: Ucan[],
): UcanError | undefined {
  if (ucan.proofs.length > LIMITS.proofs) {
    return refuse('too_many_proofs', `${ucan.proofs.length} proofs`).error;
  }
  for (const link of ucan.proofs) {
    const proof = ucans.get(link.toString());
    if (!proof) return refuse('proof_missing', link.toString()).error;
    into.push(proof);
  }
  return undefined;
}
