import { concat } from '../../src/codec/bytes.js';
import { decodeCbor } from '../../src/codec/cbor.js';
import { type Ipld, type IpldMap, Link } from '../../src/codec/ipld.js';
import type { Token, Ucan } from '../../src/codec/ucan.js';
import { readToken } from '../../src/read/read-token.js';
import {
  createBlock,
  type Fields,
  type ForgedBlock,
  forgeCbor,
  forgeToken,
  toText,
} from './forge.js';
import { bob, NOW, unwrap } from './verifier.js';

type Random = () => number;
const below = (random: Random, limit: number): number => Math.floor(random() * limit);
const pickFrom = <T>(random: Random, items: readonly T[]): T =>
  items[below(random, items.length)] as T;

type Mutation = (token: string, other: string, random: Random) => string;

const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_ \n';

const textMutations: readonly Mutation[] = [
  (token, _, random) =>
    replaceAt(token, below(random, token.length), pickFrom(random, [...BASE64])),
  (token, _, random) => token.slice(0, below(random, token.length)),
  (token, _, random) => token.slice(below(random, token.length)),
  (token, other, random) => {
    const at = below(random, Math.min(token.length, other.length));
    return token.slice(0, at) + other.slice(at);
  },
  (token, _, random) => {
    const at = below(random, token.length);
    return token.slice(0, at) + pickFrom(random, [...BASE64]) + token.slice(at);
  },
];

function replaceAt(text: string, at: number, char: string): string {
  return text.slice(0, at) + char + text.slice(at + 1);
}

type ByteMutation = (bytes: Uint8Array, other: Uint8Array, random: Random) => Uint8Array;

const byteMutations: readonly ByteMutation[] = [
  (bytes, _, random) => flipBit(bytes, random),
  (bytes, _, random) => flipBit(flipBit(bytes, random), random),
  (bytes, _, random) => {
    const at = below(random, bytes.length);
    return concat([bytes.subarray(0, at), bytes.subarray(at + 1 + below(random, 8))]);
  },
  (bytes, _, random) => {
    const at = below(random, bytes.length);
    return concat([bytes.subarray(0, at), [below(random, 256)], bytes.subarray(at)]);
  },
  (bytes, other, random) => {
    const at = below(random, bytes.length);
    const length = below(random, 64);
    const from = below(random, other.length);
    return concat([
      bytes.subarray(0, at),
      other.subarray(from, from + length),
      bytes.subarray(at + length),
    ]);
  },
  (bytes, _, random) => concat([bytes, bytes.subarray(below(random, bytes.length))]),
];

function flipBit(bytes: Uint8Array, random: Random): Uint8Array {
  const copy = Uint8Array.from(bytes);
  const at = below(random, bytes.length);
  copy[at] = (copy[at] as number) ^ (1 << below(random, 8));
  return copy;
}

const mutateBytes: Mutation = (token, other, random) => {
  const mutate = pickFrom(random, byteMutations);
  return toText(mutate(Buffer.from(token, 'base64'), Buffer.from(other, 'base64'), random));
};

/** Changes one block and gives it, and all that rest on it, the CIDs they then deserve. */
function rebuild(token: Token, change: (ucan: Ucan) => Uint8Array, random: Random): string {
  const victim = pickFrom(random, [...token.ucans.values()]);
  const renamed = new Map<string, ForgedBlock>();
  for (const ucan of token.ucans.values()) {
    const bytes = ucan === victim ? change(ucan) : ucan.bytes;
    renamed.set(ucan.cid, createBlock(relink(bytes, renamed)));
  }
  return forgeToken(...renamed.values());
}

function relink(bytes: Uint8Array, renamed: ReadonlyMap<string, ForgedBlock>): Uint8Array {
  let hex = Buffer.from(bytes).toString('hex');
  const decoded = decodeCbor(bytes);
  const proofs = decoded.ok ? ((decoded.ok as IpldMap).prf ?? []) : [];
  for (const link of Array.isArray(proofs) ? proofs : []) {
    const target = link instanceof Link ? renamed.get(link.toString()) : undefined;
    if (!target) continue;
    const [from, to] = [link.bytes, target.link.bytes].map((b) => Buffer.from(b).toString('hex'));
    hex = hex.replace(from as string, to as string);
  }
  return Buffer.from(hex, 'hex');
}

const VALUES: readonly Ipld[] = [
  null,
  true,
  0,
  1,
  -1,
  0.5,
  NOW,
  NOW + 301,
  2 ** 53 - 1,
  '',
  '*',
  '0.9.1',
  'ixo:oracle',
  [],
  {},
  new Uint8Array(),
  new Uint8Array(68),
  bob.publicKey,
  [{ can: '*', with: 'ixo:oracle' }],
  [
    { can: '*', with: 'ixo:oracle' },
    { can: 'a/b', with: 'a:b' },
  ],
  [{}],
  [{ nonce: 'x' }],
  [null],
];
const KEYS = ['s', 'v', 'att', 'aud', 'exp', 'fct', 'iss', 'nbf', 'nnc', 'prf', 'x', 'jwt'];

function changeField(ucan: Ucan, random: Random): Uint8Array {
  const fields: Fields = { ...(unwrap(decodeCbor(ucan.bytes)) as Fields) };
  const key = pickFrom(random, KEYS);
  if (random() < 0.2) delete fields[key];
  else fields[key] = pickFrom(random, VALUES);
  return forgeCbor(fields);
}

const structureMutations: readonly Mutation[] = [
  (token, _, random) => rebuild(opened(token), (ucan) => changeField(ucan, random), random),
  (token, _, random) => rebuild(opened(token), (ucan) => flipBit(ucan.bytes, random), random),
  (token, other, random) =>
    rebuild(opened(token), (ucan) => withSignatureFrom(ucan, opened(other).root), random),
];

const openedTokens = new Map<string, Token>();

function opened(token: string): Token {
  const known = openedTokens.get(token) ?? unwrap(readToken(token));
  openedTokens.set(token, known);
  return known;
}

function withSignatureFrom(ucan: Ucan, other: Ucan): Uint8Array {
  const { s } = unwrap(decodeCbor(other.bytes)) as Fields;
  return forgeCbor({ ...(unwrap(decodeCbor(ucan.bytes)) as Fields), s: s as Uint8Array });
}

/** Spoils a valid token in the text, in the bytes, or in a field with all CIDs put right again. */
export function mutate(token: string, other: string, random: Random): string {
  const kind = random();
  if (kind < 0.25) return pickFrom(random, textMutations)(token, other, random);
  if (kind < 0.5) return mutateBytes(token, other, random);
  return pickFrom(random, structureMutations)(token, other, random);
}
