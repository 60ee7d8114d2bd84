import { concat } from '../../src/codec/bytes.js';
import type { IpldMap } from '../../src/codec/ipld.js';
import { Entries, type Fields, type Forgeable, forgeCbor, Raw } from './forge.js';
import { type HostileToken, malformed, withFields, withPayload } from './hostile-token.js';
import { NOW } from './verifier.js';

const int64 = (value: number): Raw =>
  new Raw(
    concat([[0x1b], ...[7, 6, 5, 4, 3, 2, 1, 0].map((i) => [Math.floor(value / 256 ** i) % 256])]),
  );
const float64 = (value: number): Raw => {
  const bytes = new Uint8Array(9);
  bytes[0] = 0xfb;
  new DataView(bytes.buffer).setFloat64(1, value);
  return new Raw(bytes);
};

const shuffled = ({ v, ...rest }: Fields): Forgeable =>
  new Entries([...sorted(rest), ['v', v as Forgeable]]);
const sorted = (fields: Fields): [string, Forgeable][] =>
  Object.keys(fields)
    .sort((a, b) => a.length - b.length || (a < b ? -1 : 1))
    .map((key) => [key, fields[key] as Forgeable]);
const exp = NOW + 300;

/** A UCAN that is not in the one form DAG-CBOR has for it. */
export const hostileCbor: readonly HostileToken[] = [
  malformed(
    'trailing byte in a UCAN',
    withFields((f) => new Raw(concat([forgeCbor(f), [0]]))),
  ),
  malformed(
    'indefinite map',
    withFields((f) => new Raw(concat([[0xbf], forgeCbor(f).subarray(1), [0xff]]))),
  ),
  malformed(
    'indefinite array',
    withFields((f) => ({ ...f, prf: Raw.of(0x9f, 0xff) })),
  ),
  malformed(
    'indefinite bytes',
    withFields((f) => ({
      ...f,
      s: new Raw(concat([[0x5f], forgeCbor(f.s as Forgeable), [0xff]])),
    })),
  ),
  malformed(
    'integer in nine bytes',
    withFields((f) => ({ ...f, exp: int64(exp) })),
  ),
  malformed(
    'length in two bytes',
    withFields((f) => ({ ...f, prf: Raw.of(0x98, 0) })),
  ),
  malformed(
    'float expiry',
    withFields((f) => ({ ...f, exp: float64(exp) })),
  ),
  malformed(
    'NaN expiry',
    withFields((f) => ({ ...f, exp: float64(Number.NaN) })),
  ),
  malformed(
    'infinite expiry',
    withFields((f) => ({ ...f, exp: float64(Number.POSITIVE_INFINITY) })),
  ),
  malformed(
    'half-precision expiry',
    withFields((f) => ({ ...f, exp: Raw.of(0xf9, 0x7b, 0xff) })),
  ),
  malformed(
    'integer beyond 2^53',
    withFields((f) => ({ ...f, exp: int64(2 ** 60) })),
  ),
  malformed(
    'bignum expiry',
    withFields((f) => ({ ...f, exp: Raw.of(0xc2, 0x44, 0x7f, 0, 0, 0) })),
  ),
  malformed(
    'undefined',
    withFields((f) => ({ ...f, exp: Raw.of(0xf7) })),
  ),
  malformed(
    'duplicate key',
    withFields((f) => new Entries([...sorted(f), ['prf', []]])),
  ),
  malformed(
    'the same entry twice',
    withFields((f) => new Entries(sorted(f).flatMap((e) => (e[0] === 'exp' ? [e, e] : [e])))),
  ),
  malformed('keys out of order', withFields(shuffled)),
  malformed(
    'number as a key',
    withFields((f) => new Entries([[1, 2], ...sorted(f)])),
  ),
  malformed(
    'huge array header',
    withFields((f) => ({ ...f, prf: Raw.of(0x9a, 0xff, 0xff, 0xff, 0xff) })),
  ),
  malformed(
    'huge map header',
    withFields(() => Raw.of(0xba, 0xff, 0xff, 0xff, 0xff)),
  ),
  malformed(
    'huge text header',
    withFields((f) => ({ ...f, nnc: Raw.of(0x7a, 0xff, 0xff, 0xff, 0xff) })),
  ),
  malformed(
    'deep CBOR',
    withFields((f) => ({ ...f, fct: [{ a: deep(5000) }] })),
  ),
  malformed('nested just too deep', withPayload({ facts: [nested(15)] })),
  malformed(
    'text that is not UTF-8',
    withFields((f) => ({ ...f, nnc: Raw.of(0x61, 0xff) })),
  ),
  malformed('byte order mark', withPayload({ nonce: '\uFEFFn' })),
  malformed(
    'foreign tag',
    withFields((f) => ({ ...f, nnc: Raw.of(0xc0, 0x61, 0x61) })),
  ),
  malformed(
    'link to a CIDv0',
    withFields((f) => ({ ...f, fct: [{ a: link(0x12, 0x20, ...new Array(32).fill(1)) }] })),
  ),
  malformed(
    'link truncated',
    withFields((f) => ({ ...f, fct: [{ a: link(1, 0x71, 0x12, 0x20, 1) }] })),
  ),
  malformed(
    'not a map',
    withFields((f) => [f]),
  ),
];

function deep(levels: number): Raw {
  return new Raw(concat([new Uint8Array(levels).fill(0x81), [0x80]]));
}

function nested(levels: number): IpldMap {
  return levels === 0 ? {} : { a: nested(levels - 1) };
}

function link(...cid: number[]): Raw {
  return new Raw(concat([[0xd8, 42, 0x58, cid.length + 1, 0], cid]));
}
