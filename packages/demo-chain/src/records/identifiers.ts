import { createHash } from 'node:crypto';

const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';
/** A CIDv1 of raw bytes, with SHA-256. */
const CID_PREFIX = Buffer.from([0x01, 0x55, 0x12, 0x20]);

const digest = (algorithm: string, text: string) => createHash(algorithm).update(text).digest();

/** The address for a name on the demo chain. */
export const makeAddress = (name: string): string =>
  bech32('ixo', digest('sha256', name).subarray(0, 20));

/** The address of a contract, which is longer than that of a person. */
export const makeContractAddress = (name: string): string =>
  bech32('ixo', digest('sha256', `contract ${name}`));

/** The DID of a person. */
export const makeDid = (name: string): string => `did:ixo:${makeAddress(name)}`;

/** The DID of an entity: a project, an organization, a device and so on. */
export const makeEntityDid = (name: string): string =>
  `did:ixo:entity:${digest('md5', name).toString('hex')}`;

/** The id of a token, as its contract computes it. */
export const makeTokenId = (name: string): string => digest('md5', `token ${name}`).toString('hex');

/** The content id of a text. */
export function makeCid(text: string): string {
  const digits = fiveBitDigits(Buffer.concat([CID_PREFIX, digest('sha256', text)]));
  return `b${digits.map((digit) => BASE32[digit]).join('')}`;
}

const ALPHABET = 'qpzry9x8gf2tvdw0s3jn54khce6mua7l';
const GENERATOR = [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3];
const CHECKSUM_DIGITS = 6;

/** Encodes bytes in bech32: a prefix, five bits per character, and a checksum. */
export function bech32(prefix: string, bytes: Uint8Array): string {
  const data = fiveBitDigits(bytes);
  const digits = [...data, ...computeChecksum(prefix, data)];
  return `${prefix}1${digits.map((digit) => ALPHABET[digit]).join('')}`;
}

function computeChecksum(prefix: string, data: readonly number[]): number[] {
  const codes = [...prefix].map((letter) => letter.charCodeAt(0));
  const high = codes.map((code) => code >> 5);
  const low = codes.map((code) => code & 31);
  const sum = polymod([...high, 0, ...low, ...data, ...Array(CHECKSUM_DIGITS).fill(0)]) ^ 1;
  return Array.from({ length: CHECKSUM_DIGITS }, (_, i) => (sum >> (5 * (5 - i))) & 31);
}

function polymod(values: readonly number[]): number {
  return values.reduce((sum, value) => {
    const shifted = ((sum & 0x1ffffff) << 5) ^ value;
    return GENERATOR.reduce((at, term, i) => (((sum >> 25) >> i) & 1 ? at ^ term : at), shifted);
  }, 1);
}

/** Bytes as numbers of five bits each, which base32 and bech32 both print. */
export function fiveBitDigits(bytes: Uint8Array): number[] {
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, '0')).join('');
  return (bits.match(/.{1,5}/g) ?? []).map((five) => Number.parseInt(five.padEnd(5, '0'), 2));
}

/** Replaces the hashes of a real chain: the same length, and equal at every start. */
export function makeHash(what: string): string {
  return createHash('sha256').update(what).digest('base64');
}
