import type { Result } from '@sibyl/protocol';
import type { Block } from '../codec/archive.js';
import { concat, startsWith, utf8 } from '../codec/bytes.js';
import { CID_LENGTH, isUcanLink, Link } from '../codec/link.js';
import { UCAN_VERSION } from '../codec/ucan-block.js';
import { refuse, type UcanFault } from '../fault.js';

/** All bytes before the CID in an archive's root block. */
const ARCHIVE_ROOT_HEAD = concat([
  [0xa1, 0x6a],
  utf8(`ucan@${UCAN_VERSION}`),
  [0xd8, 0x2a, 0x58, 0x25, 0x00],
]);

/** The link to the UCAN that an archive is about. */
export function readArchiveRoot({ bytes }: Block): Result<Link, UcanFault> {
  const link = new Link(bytes.subarray(ARCHIVE_ROOT_HEAD.length));
  if (!startsWith(bytes, ARCHIVE_ROOT_HEAD) || link.bytes.length !== CID_LENGTH) {
    return refuse('root_malformed', 'not exactly {"ucan@0.9.1": link}');
  }
  return isUcanLink(link) ? { ok: link } : refuse('cid_unsupported', `root names ${link}`);
}
