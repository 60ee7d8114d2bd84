import { concat, utf8 } from './bytes.js';
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

/** All bytes before the CID in an archive's root block. */
export const ARCHIVE_ROOT_HEAD = concat([
  [0xa1, 0x6a],
  utf8(`ucan@${UCAN_VERSION}`),
  [0xd8, 0x2a, 0x58, 0x25, 0x00],
]);

/** A CARv1 with one root, its block first, as ucanto writes it. */
export function encodeCar(root: Block, blocks: readonly Block[]): Uint8Array {
  const header: Ipld = { roots: [root.link], version: 1 };
  const sections = [root, ...blocks].map(({ link, bytes }) => concat([link.bytes, bytes]));
  return concat(
    [encodeCbor(header), ...sections].flatMap((section) => [varint(section.length), section]),
  );
}
