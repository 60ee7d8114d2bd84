import { concat } from './bytes.js';
import { encodeCbor } from './cbor-encode.js';
import type { Ipld } from './ipld.js';
import type { Link } from './link.js';
import { UCAN_VERSION } from './ucan-block.js';
import { varint } from './varint.js';

export interface Block {
  readonly link: Link;
  readonly bytes: Uint8Array;
}

/** The bytes of the block that says which UCAN an archive is about. */
export const encodeArchiveRoot = (link: Link): Uint8Array =>
  encodeCbor({ [`ucan@${UCAN_VERSION}`]: link });

/** A CARv1 with one root, its block last, as ucanto writes it. */
export function encodeCar(root: Block, blocks: readonly Block[]): Uint8Array {
  const header: Ipld = { roots: [root.link], version: 1 };
  const sections = [...blocks, root].map(({ link, bytes }) => concat([link.bytes, bytes]));
  return concat(
    [encodeCbor(header), ...sections].flatMap((section) => [varint(section.length), section]),
  );
}
