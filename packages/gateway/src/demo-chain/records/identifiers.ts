import { createHash } from 'node:crypto';
import { bech32 } from './bech32.js';
import { fiveBitDigits } from './five-bit-digits.js';

const BASE32 = 'abcdefghijklmnopqrstuvwxyz234567';
/** A CID of version 1, of raw bytes, by SHA-256. */
const CID_PREFIX = Buffer.from([0x01, 0x55, 0x12, 0x20]);

const digest = (algorithm: string, text: string) => createHash(algorithm).update(text).digest();

/** The address of whoever has this name on the demo chain. */
export const addressOf = (name: string): string =>
  bech32('ixo', digest('sha256', name).subarray(0, 20));

/** The address of a contract, which is longer than that of a person. */
export const contractOf = (name: string): string =>
  bech32('ixo', digest('sha256', `contract ${name}`));

/** The did of a person. */
export const didOf = (name: string): string => `did:ixo:${addressOf(name)}`;

/** The did of a project, an organisation, a device or whatever else is an entity. */
export const entityDidOf = (name: string): string =>
  `did:ixo:entity:${digest('md5', name).toString('hex')}`;

/** The id of a token, as its contract makes it. */
export const tokenIdOf = (name: string): string => digest('md5', `token ${name}`).toString('hex');

/** The content id of a text. */
export function cidOf(text: string): string {
  const digits = fiveBitDigits(Buffer.concat([CID_PREFIX, digest('sha256', text)]));
  return `b${digits.map((digit) => BASE32[digit]).join('')}`;
}
