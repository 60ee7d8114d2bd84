import { createHash } from 'node:crypto';
import { concat, utf8 } from '../../src/codec/bytes.js';
import { Link } from '../../src/codec/ipld.js';
import {
  archiveRoot,
  carBlock,
  carHeader,
  createBlock,
  type ForgedBlock,
  forgeCar,
  forgeCbor,
  forgeToken,
  forgeTokenOfLength,
  forgeUcan,
  Raw,
  section,
  toText,
} from './forge.js';
import type { HostileToken } from './hostile-token.js';

const ucan = forgeUcan();
const root = archiveRoot(ucan.link);
const header = carHeader({ roots: [root.link], version: 1 });
const car = forgeCar(ucan);
const valid = toText(car);

/** A valid token whose base64 ends in padding, so that spare bits exist. */
const padded = paddedToken();

function paddedToken(): string {
  for (let length = 1; ; length += 1) {
    const token = forgeToken(forgeUcan({ payload: { nonce: 'n'.repeat(length) } }));
    if (token.endsWith('=') && /[+/]/.test(token)) return token;
  }
}

function withSpareBits(token: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const last = token.replace(/=+$/, '').length - 1;
  const raised = alphabet[alphabet.indexOf(token[last] as string) + 1] as string;
  return token.slice(0, last) + raised + token.slice(last + 1);
}

const texts: readonly HostileToken[] = [
  { name: 'undefined', code: 'token_not_string', token: undefined },
  { name: 'null', code: 'token_not_string', token: null },
  { name: 'number', code: 'token_not_string', token: 7 },
  { name: 'bytes', code: 'token_not_string', token: car },
  { name: 'String object', code: 'token_not_string', token: Object(valid) },
  { name: 'array of one token', code: 'token_not_string', token: [valid] },
  { name: 'over 8192 characters', code: 'token_too_long', token: forgeTokenOfLength(8196) },
  { name: 'a megabyte', code: 'token_too_long', token: 'A'.repeat(2 ** 20) },
  { name: 'empty', code: 'car_malformed', token: '' },
  { name: 'base64 with spare bits set', code: 'base64_invalid', token: withSpareBits(padded) },
  { name: 'base64 without padding', code: 'base64_invalid', token: padded.replace(/=+$/, '') },
  { name: 'base64 with surplus padding', code: 'base64_invalid', token: `${padded}=` },
  {
    name: 'url-safe base64',
    code: 'base64_invalid',
    token: padded.replaceAll('+', '-').replaceAll('/', '_'),
  },
  { name: 'line feed at the end', code: 'base64_invalid', token: `${valid}\n` },
  { name: 'space inside', code: 'base64_invalid', token: `${valid.slice(0, 8)} ${valid.slice(8)}` },
  { name: 'unicode', code: 'base64_invalid', token: `${valid.slice(0, -4)}äöü=` },
  { name: 'multibase prefix', code: 'base64_invalid', token: `m${valid}` },
];

const v2Pragma = section(forgeCbor({ version: 2 }));

const cars: readonly HostileToken[] = [
  {
    name: 'CARv2',
    code: 'car_version',
    token: toText(concat([v2Pragma, new Uint8Array(40), car])),
  },
  {
    name: 'header of version 2 around the same blocks',
    code: 'car_version',
    token: archive(carHeader({ roots: [root.link], version: 2 })),
  },
  { name: 'no root', code: 'car_roots', token: archive(carHeader({ roots: [], version: 1 })) },
  {
    name: 'two roots',
    code: 'car_roots',
    token: archive(carHeader({ roots: [root.link, ucan.link], version: 1 })),
  },
  {
    name: 'the same root twice',
    code: 'car_roots',
    token: archive(carHeader({ roots: [root.link, root.link], version: 1 })),
  },
  {
    name: 'root block missing',
    code: 'car_roots',
    token: toText(concat([header, carBlock(ucan)])),
  },
  {
    name: 'extra key in the header',
    code: 'car_malformed',
    token: archive(carHeader({ roots: [root.link], version: 1, x: 1 })),
  },
  { name: 'trailing zero', code: 'car_malformed', token: toText(concat([car, [0]])) },
  { name: 'trailing bytes', code: 'car_malformed', token: toText(concat([car, [9, 1, 2]])) },
  { name: 'truncated', code: 'car_malformed', token: toText(car.subarray(0, -1)) },
  { name: 'header alone', code: 'car_roots', token: toText(header) },
  {
    name: 'huge varint',
    code: 'car_malformed',
    token: toText(concat([car, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]])),
  },
  {
    name: 'endless varint',
    code: 'car_malformed',
    token: toText(concat([car, new Uint8Array(3000).fill(0xff)])),
  },
  {
    name: 'section length in two bytes too many',
    code: 'car_malformed',
    token: toText(concat([[(header[0] as number) | 0x80, 0x00], car.subarray(1)])),
  },
  {
    name: 'duplicate block',
    code: 'car_duplicate_block',
    token: archive(header, carBlock(ucan)),
  },
  {
    name: 'duplicate root block',
    code: 'car_duplicate_block',
    token: archive(header, carBlock(root)),
  },
  { name: 'eleven blocks', code: 'car_too_many_blocks', token: archive(header, ...extraBlocks(9)) },
];

function archive(head: Uint8Array, ...more: readonly Uint8Array[]): string {
  return toText(concat([head, carBlock(root), carBlock(ucan), ...more]));
}

function extraBlocks(count: number): Uint8Array[] {
  return Array.from({ length: count }, (_, i) =>
    carBlock(forgeUcan({ payload: { nonce: String(i) } })),
  );
}

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest();
const sha512 = (bytes: Uint8Array) => createHash('sha512').update(bytes).digest();

/** The valid UCAN under a link of another kind, which the archive root names. */
function relabelled(bytes: readonly number[], digest: Uint8Array, block = ucan): string {
  return forgeToken({ link: new Link(concat([bytes, digest])), bytes: block.bytes });
}

const other: ForgedBlock = forgeUcan({ payload: { nonce: 'other' } });
const jwt = createBlock(utf8('eyJhbGciOiJFZERTQSJ9.eyJpc3MiOiJkaWQ6a2V5OnoifQ.c2ln'));

const cids: readonly HostileToken[] = [
  {
    name: 'relabelled CID',
    code: 'cid_mismatch',
    token: relabelled([1, 0x71, 0x12, 0x20], sha256(other.bytes)),
  },
  { name: 'CIDv0', code: 'cid_unsupported', token: relabelled([0x12, 0x20], sha256(ucan.bytes)) },
  {
    name: 'raw codec',
    code: 'cid_unsupported',
    token: relabelled([1, 0x55, 0x12, 0x20], sha256(ucan.bytes)),
  },
  {
    name: 'sha2-512',
    code: 'cid_unsupported',
    token: relabelled([1, 0x71, 0x13, 0x40], sha512(ucan.bytes)),
  },
  {
    name: 'identity hash',
    code: 'cid_unsupported',
    token: relabelled([1, 0x71, 0x00, 0x20], ucan.bytes.subarray(0, 32)),
  },
  {
    name: 'JWT form, raw',
    code: 'cid_unsupported',
    token: relabelled([1, 0x55, 0x12, 0x20], sha256(jwt.bytes), jwt),
  },
  { name: 'JWT form under a dag-cbor CID', code: 'ucan_malformed', token: forgeToken(jwt) },
  {
    name: 'non-minimal varint in a CID',
    code: 'cid_unsupported',
    token: relabelled([1, 0xf1, 0x00, 0x12, 0x20], sha256(ucan.bytes)),
  },
];

function withArchiveRoot(bytes: Uint8Array): string {
  const block = createBlock(bytes);
  const head = carHeader({ roots: [block.link], version: 1 });
  return toText(concat([head, carBlock(block), carBlock(ucan)]));
}

const roots: readonly HostileToken[] = [
  {
    name: 'two keys in the archive root',
    code: 'root_malformed',
    token: withArchiveRoot(forgeCbor({ 'ucan@0.9.1': ucan.link, x: 1 })),
  },
  {
    name: 'archive root of another version',
    code: 'root_malformed',
    token: withArchiveRoot(forgeCbor({ 'ucan@0.9.2': ucan.link })),
  },
  {
    name: 'trailing byte in the archive root',
    code: 'root_malformed',
    token: withArchiveRoot(concat([root.bytes, [0]])),
  },
  {
    name: 'archive root names text',
    code: 'root_malformed',
    token: withArchiveRoot(forgeCbor({ 'ucan@0.9.1': ucan.link.toString() })),
  },
  {
    name: 'archive root with an indefinite map',
    code: 'root_malformed',
    token: withArchiveRoot(concat([[0xbf], root.bytes.subarray(1), [0xff]])),
  },
  {
    name: 'UCAN as the root itself',
    code: 'root_malformed',
    token: toText(concat([carHeader({ roots: [ucan.link], version: 1 }), carBlock(ucan)])),
  },
  {
    name: 'root link of another kind',
    code: 'cid_unsupported',
    token: archive(
      carHeader({
        roots: [new Link(concat([[1, 0x55, 0x12, 0x20], sha256(root.bytes)]))],
        version: 1,
      }),
    ),
  },
  {
    name: 'archive root names a block that is not there',
    code: 'proof_missing',
    token: withArchiveRoot(forgeCbor({ 'ucan@0.9.1': other.link })),
  },
  {
    name: 'header that is not CBOR',
    code: 'car_malformed',
    token: archive(carHeader(Raw.of(0xff, 0xff))),
  },
];

/** Wrong before any UCAN is looked at. */
export const hostileArchives: readonly HostileToken[] = [...texts, ...cars, ...cids, ...roots];
