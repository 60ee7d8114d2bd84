import type { Result } from '@sibyl/protocol';
import type { Block } from '../codec/archive.js';
import { refuse, type UcanFault } from '../fault.js';
import { checkShape } from './check-shape.js';
import { readArchiveRoot } from './read-archive-root.js';
import { readBase64 } from './read-base64.js';
import { readCar } from './read-car.js';
import { readUcan } from './read-ucan.js';
import type { Token, Ucan } from './token.js';

/** The strict gate: reads a token cheapest check first, so that no library meets hostile bytes. */
export function readToken(token: unknown): Result<Token, UcanFault> {
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
  const fault = checkShape(root, ucans.ok);
  if (fault) return { error: named(fault, root) };
  return { ok: { text: token as string, root, ucans: ucans.ok } };
}

function readUcans(
  blocks: ReadonlyMap<string, Block>,
): Result<ReadonlyMap<string, Ucan>, UcanFault> {
  const ucans = new Map<string, Ucan>();
  for (const [cid, block] of blocks) {
    const ucan = readUcan(block);
    if (ucan.error) return { error: { ...ucan.error, cid } };
    ucans.set(cid, ucan.ok);
  }
  return { ok: ucans };
}

/** Adds to a fault which UCAN it is about and who issued it. */
export function named(fault: UcanFault, ucan: Ucan): UcanFault {
  return { cid: ucan.cid, issuer: ucan.issuer, ...fault };
}
