import { createHash, createPrivateKey, createPublicKey, randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { decodeBase58, encodeBase58 } from '../codec/bytes.js';
import { createDidKeyResolver, didFromPublicKey, publicKeyFromDid } from './did-key.js';

/** The mnemonic `abandon` ×11 `about`, hashed to an Ed25519 seed. */
const KNOWN_DID = 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c';
const KNOWN_SEED = createHash('sha256')
  .update(`${'abandon '.repeat(11)}about`)
  .digest();

function readPublicKey(seed: Uint8Array): Uint8Array {
  const pkcs8 = Buffer.concat([Buffer.from('302e020100300506032b657004220420', 'hex'), seed]);
  const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' });
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-32);
}

describe('didFromPublicKey', () => {
  it('names a known key', () => {
    expect(didFromPublicKey(readPublicKey(KNOWN_SEED))).toBe(KNOWN_DID);
  });

  it('is undone by publicKeyFromDid for any key', () => {
    for (let i = 0; i < 100; i++) {
      const raw = new Uint8Array(randomBytes(32));
      expect(publicKeyFromDid(didFromPublicKey(raw)).ok).toEqual(raw);
    }
  });
});

describe('publicKeyFromDid', () => {
  const payload = KNOWN_DID.slice('did:key:z'.length);
  it.each([
    ['', 'empty'],
    ['did:key:', 'no key'],
    ['did:key:z', 'no digits'],
    [`${KNOWN_DID}#${payload}`, 'fragment'],
    [`${KNOWN_DID}/path`, 'path'],
    [`${KNOWN_DID}?q`, 'query'],
    [` ${KNOWN_DID}`, 'leading space'],
    [`${KNOWN_DID}\n`, 'trailing newline'],
    [`did:key:z0${payload}`, 'a character outside base58'],
    [`did:key:f${'ed01'}${'00'.repeat(32)}`, 'another multibase'],
    [`did:key:z${'z'.repeat(100_000)}`, 'too long'],
    ['did:web:example.org', 'another method'],
    [didFromPublicKey(new Uint8Array(31)), 'a short key'],
    [didFromPublicKey(new Uint8Array(33)), 'a long key'],
  ])('refuses %j as invalid or unsupported (%s)', (did) => {
    expect(publicKeyFromDid(did).error?.code).toMatch(/^did_(invalid|unsupported)$/);
  });

  it('refuses leading ones, a second spelling of the same number', () => {
    expect(publicKeyFromDid(`did:key:z1${payload}`).error?.code).toBe('did_unsupported');
  });

  it.each([
    ['secp256k1', [0xe7, 0x01], 33],
    ['P-256', [0x80, 0x24], 33],
    ['X25519', [0xec, 0x01], 32],
  ])('says that %s is unsupported', (_, codec, length) => {
    const did = `did:key:z${encodeBase58(Uint8Array.from([...codec, ...new Array(length).fill(7)]))}`;
    expect(publicKeyFromDid(did).error?.code).toBe('did_unsupported');
  });

  it('never throws, for any input', () => {
    for (const input of [undefined, null, 7, {}, [], '\u0000', '\ud800']) {
      expect(publicKeyFromDid(input as string).error?.code).toBe('did_invalid');
    }
  });
});

describe('createDidKeyResolver', () => {
  it('gives the one key', async () => {
    const { ok } = await createDidKeyResolver().resolve(KNOWN_DID);
    expect(ok).toHaveLength(1);
    expect(Buffer.from(ok?.[0] ?? [])).toEqual(Buffer.from(readPublicKey(KNOWN_SEED)));
  });

  it('passes the error on', async () => {
    expect((await createDidKeyResolver().resolve('did:key:x')).error?.code).toBe('did_invalid');
  });
});

describe('base58', () => {
  it.each([
    ['', ''],
    ['00', '1'],
    ['0000ff', '115Q'],
    ['48656c6c6f20576f726c6421', '2NEpo7TZRRrLZSi2U'],
  ])('%s is written %s', (hex, text) => {
    expect(encodeBase58(Buffer.from(hex, 'hex'))).toBe(text);
    expect(Buffer.from(decodeBase58(text) ?? [1]).toString('hex')).toBe(hex);
  });
});
