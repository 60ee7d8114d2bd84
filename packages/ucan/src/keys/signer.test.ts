import { ed25519 } from '@ucanto/principal';
import { describe, expect, test } from 'vitest';
import { alice, bob, unwrap } from '../../test/support/verifier.js';
import { utf8 } from '../codec/bytes.js';
import { verifyEd25519 } from './ed25519.js';
import {
  exportPrivateKey,
  generateSigner,
  signerFromMnemonic,
  signerFromPrivateKey,
  signerFromSeed,
} from './signer.js';

const MNEMONIC = `${'abandon '.repeat(11)}about`;
const GOLDEN = 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c';

describe('a signer', () => {
  test('signerFromMnemonic ignores surrounding space', () => {
    expect(unwrap(signerFromMnemonic(MNEMONIC)).did).toBe(GOLDEN);
    expect(unwrap(signerFromMnemonic(`  ${MNEMONIC}\n`)).did).toBe(GOLDEN);
  });

  test('is the same key in ucanto', async () => {
    const theirs = await ed25519.derive(alice.exportSeed());
    expect(alice.did).toBe(theirs.did());
    expect(exportPrivateKey(alice)).toBe(ed25519.format(theirs));
    const signature = await theirs.sign(utf8('x'));
    expect(Buffer.from(alice.sign(utf8('x')))).toEqual(Buffer.from(signature.raw));
  });

  test('is new every time it is generated', () => {
    const signer = generateSigner();
    expect(signer.did).not.toBe(generateSigner().did);
    expect(verifyEd25519(signer.publicKey, utf8('x'), signer.sign(utf8('x')))).toBe(true);
  });

  test('signs under another DID with the same key', () => {
    const named = unwrap(alice.withDid('did:ixo:entity:1'));
    expect(named).toMatchObject({ did: 'did:ixo:entity:1', keyDid: alice.did });
    expect(named.sign(utf8('x'))).toEqual(alice.sign(utf8('x')));
    expect(unwrap(alice.withDid(alice.did)).did).toBe(alice.did);
  });

  test('never signs under the key of another', () => {
    expect(alice.withDid(bob.did).error?.code).toBe('key_invalid');
    expect(alice.withDid('nonsense').error?.code).toBe('key_invalid');
  });

  test('keeps its seed to itself', () => {
    alice.exportSeed().fill(0);
    expect(unwrap(signerFromSeed(alice.exportSeed())).did).toBe(alice.did);
    expect(JSON.stringify(alice)).not.toContain(Buffer.from(alice.exportSeed()).toString('hex'));
  });
});

describe('a private key as text', () => {
  test.each([
    exportPrivateKey(alice),
    ` ${exportPrivateKey(alice)}\n`,
    Buffer.from(alice.exportSeed()).toString('hex'),
    Buffer.from(alice.exportSeed()).toString('hex').toUpperCase(),
  ])('is read: %s', (text) => {
    expect(unwrap(signerFromPrivateKey(text)).did).toBe(alice.did);
  });

  test.each([
    '',
    'M',
    'nonsense',
    'ab'.repeat(31),
    exportPrivateKey(alice).slice(0, -4),
    `m${exportPrivateKey(alice).slice(1)}`,
    mixed(),
  ])('is refused: %s', (text) => {
    expect(signerFromPrivateKey(text).error?.code).toBe('key_invalid');
  });

  test.each(['', '  \n'])('an empty mnemonic is refused', (text) => {
    expect(signerFromMnemonic(text).error?.code).toBe('key_invalid');
  });

  test('a seed of another length is refused', () => {
    expect(signerFromSeed(new Uint8Array(31)).error?.code).toBe('key_invalid');
  });

  /** The private half of alice with the public half of bob. */
  function mixed(): string {
    const bytes = Buffer.from(exportPrivateKey(alice).slice(1), 'base64');
    bytes.set(bob.publicKey, 36);
    return `M${bytes.toString('base64')}`;
  }
});
