import { createHash } from 'node:crypto';
import type { Result } from '@sibyl/protocol';
import { concat, equalBytes, readVarint, startsWith, utf8 } from '../codec/bytes.js';
import { decodeCbor } from '../codec/cbor.js';
import { CID_LENGTH, isIpldMap, isUcanLink, Link } from '../codec/ipld.js';
import { type Block, LIMITS, UCAN_VERSION } from '../codec/ucan.js';
import { refuse, type UcanError } from '../errors.js';

interface Car {
  readonly root: Block;
  /** All blocks but the root, by CID. */
  readonly blocks: ReadonlyMap<string, Block>;
}

/** Reads a CARv1 of one root whose every block is what its CID says. */
export function readCar(bytes: Uint8Array): Result<Car, UcanError> {
  const header = readSection(bytes, 0);
  if (!header) return refuse('car_malformed', 'no header');
  const rootLink = readHeader(header.content);
  if (rootLink.error) return rootLink;
  const blocks = readBlocks(bytes, header.next);
  if (blocks.error) return blocks;
  const root = blocks.ok.get(rootLink.ok.toString());
  if (!root) return refuse('car_roots', 'the root block is missing');
  blocks.ok.delete(rootLink.ok.toString());
  return { ok: { root, blocks: blocks.ok } };
}

interface Section {
  readonly content: Uint8Array;
  readonly next: number;
}

function readSection(bytes: Uint8Array, offset: number): Section | undefined {
  const length = readVarint(bytes, offset);
  if (!length || length.value === 0 || length.value > bytes.length - length.next) return undefined;
  const next = length.next + length.value;
  return { content: bytes.subarray(length.next, next), next };
}

function readBlocks(bytes: Uint8Array, start: number): Result<Map<string, Block>, UcanError> {
  const sections = splitSections(bytes, start);
  if (sections.error) return sections;
  const blocks = new Map<string, Block>();
  for (const section of sections.ok) {
    const block = readBlock(section);
    if (block.error) return block;
    const cid = block.ok.link.toString();
    if (blocks.has(cid)) return refuse('car_duplicate_block', cid);
    blocks.set(cid, block.ok);
  }
  return { ok: blocks };
}

function splitSections(bytes: Uint8Array, start: number): Result<Uint8Array[], UcanError> {
  const sections: Uint8Array[] = [];
  for (let offset = start; offset < bytes.length; ) {
    const section = readSection(bytes, offset);
    if (!section) return refuse('car_malformed', `section at byte ${offset}`);
    if (sections.length === LIMITS.blocks) return refuse('car_too_many_blocks', 'over the limit');
    sections.push(section.content);
    offset = section.next;
  }
  return { ok: sections };
}

function readHeader(bytes: Uint8Array): Result<Link, UcanError> {
  const header = decodeCbor(bytes);
  if (header.error !== undefined) return refuse('car_malformed', `header: ${header.error}`);
  if (!isIpldMap(header.ok)) return refuse('car_malformed', 'header is not a map');
  const { version, roots, ...others } = header.ok;
  if (version !== 1) return refuse('car_version', 'not a CARv1');
  if (!Array.isArray(roots) || Object.keys(others).length > 0) {
    return refuse('car_malformed', 'header fields');
  }
  const [root] = roots;
  if (roots.length !== 1 || !(root instanceof Link)) {
    return refuse('car_roots', `${roots.length} roots`);
  }
  return isUcanLink(root) ? { ok: root } : refuse('cid_unsupported', `root ${root}`);
}

function readBlock(section: Uint8Array): Result<Block, UcanError> {
  const link = new Link(section.subarray(0, CID_LENGTH));
  if (!isUcanLink(link)) return refuse('cid_unsupported', 'not CIDv1, dag-cbor, sha2-256');
  const bytes = section.subarray(CID_LENGTH);
  const digest = createHash('sha256').update(bytes).digest();
  if (!equalBytes(digest, link.bytes.subarray(4))) {
    return refuse('cid_mismatch', `the block is not ${link}`);
  }
  return { ok: { link, bytes } };
}

/** All bytes before the CID in an archive's root block. */
const ARCHIVE_ROOT_HEAD = concat([
  [0xa1, 0x6a],
  utf8(`ucan@${UCAN_VERSION}`),
  [0xd8, 0x2a, 0x58, 0x25, 0x00],
]);

/** The link to the UCAN that an archive is about. */
export function readArchiveRoot({ bytes }: Block): Result<Link, UcanError> {
  const link = new Link(bytes.subarray(ARCHIVE_ROOT_HEAD.length));
  if (!startsWith(bytes, ARCHIVE_ROOT_HEAD) || link.bytes.length !== CID_LENGTH) {
    return refuse('root_malformed', 'not exactly {"ucan@0.9.1": link}');
  }
  return isUcanLink(link) ? { ok: link } : refuse('cid_unsupported', `root names ${link}`);
}
