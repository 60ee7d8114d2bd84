import { Signature } from '@ucanto/core';
import { ed25519 } from '@ucanto/principal';
import { describe, expect, test } from 'vitest';
import { plusGroupOrder } from '../../test/support/hostile-signatures.js';
import { alice, bob, unwrap } from '../../test/support/verifier.js';
import { concat, utf8 } from '../codec/bytes.js';
import { didFromPublicKey } from '../did/did-key.js';
import {
  exportPrivateKey,
  generateSigner,
  isCanonicalSignature,
  isSoundPublicKey,
  signerFromMnemonic,
  signerFromPrivateKey,
  signerFromSeed,
  verifyEd25519,
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

const message = utf8('message');
const signature = alice.sign(message);
const P = 2n ** 255n - 19n;

const encodePoint = (y: bigint, sign: number): Uint8Array => {
  const bytes = Buffer.from(y.toString(16).padStart(64, '0'), 'hex').reverse();
  bytes[31] = (bytes[31] as number) | (sign << 7);
  return bytes;
};

const power = (base: bigint, exponent: bigint): bigint => {
  let result = 1n;
  for (let b = base % P, e = exponent; e > 0n; e >>= 1n, b = (b * b) % P) {
    if (e & 1n) result = (result * b) % P;
  }
  return result;
};
const inverse = (value: bigint): bigint => power(value, P - 2n);

/** Doubling a point of order 8 gives y = 0, so x² = -y² and, on the curve, d·y⁴ + 2y² - 1 = 0. */
function orderEightY(): bigint[] {
  const d = ((((P - 121665n) * inverse(121666n)) % P) + P) % P;
  const root = squareRoot((1n + d) % P);
  return [root, P - root]
    .map((r) => ((((r - 1n) * inverse(d)) % P) + P) % P)
    .filter((t) => power(t, (P - 1n) / 2n) === 1n)
    .flatMap((t) => [squareRoot(t), P - squareRoot(t)]);
}

function squareRoot(value: bigint): bigint {
  const candidate = power(value, (P + 3n) / 8n);
  if ((candidate * candidate) % P === value % P) return candidate;
  return (candidate * power(2n, (P - 1n) / 4n)) % P;
}

describe('public keys of small order', () => {
  const ys = [0n, 1n, P - 1n, ...orderEightY()];

  test('there are five y coordinates, in eight points', () => {
    expect(new Set(ys).size).toBe(5);
  });

  const encodings = [...ys, P, P + 1n].flatMap((y) => [encodePoint(y, 0), encodePoint(y, 1)]);
  test.each(encodings.map((key) => [Buffer.from(key).toString('hex'), key] as const))(
    '%s is refused',
    (_, key) => expect(isSoundPublicKey(key)).toBe(false),
  );

  test('ucanto lets the identity sign everything, we do not', async () => {
    const identity = encodePoint(1n, 0);
    const forged = concat([identity, new Uint8Array(32)]);
    const theirs = ed25519.Verifier.parse(didFromPublicKey(identity));
    const theirSignature = Signature.create(Signature.EdDSA, forged);
    expect(await theirs.verify(message as never, theirSignature as never)).toBe(true);
    expect(verifyEd25519(identity, message, forged)).toBe(false);
  });

  test('a y above the field is refused', () => {
    expect(isSoundPublicKey(encodePoint(P + 3n, 0))).toBe(false);
    expect(isSoundPublicKey(encodePoint(2n ** 255n - 1n, 1))).toBe(false);
  });
});

describe('signatures', () => {
  test('the right one verifies, also from the cached key', () => {
    expect(verifyEd25519(alice.publicKey, message, signature)).toBe(true);
    expect(verifyEd25519(alice.publicKey, message, signature)).toBe(true);
  });

  test.each([
    ['another message', alice.publicKey, utf8('massage'), signature],
    ['another key', bob.publicKey, message, signature],
    ['63 bytes', alice.publicKey, message, signature.subarray(0, 63)],
    ['65 bytes', alice.publicKey, message, concat([signature, [0]])],
    ['a key of 31 bytes', alice.publicKey.subarray(1), message, signature],
    ['a key of 33 bytes', concat([alice.publicKey, [0]]), message, signature],
    ['S + L', alice.publicKey, message, withLargerS()],
    ['a key that is not a point', encodePoint(2n, 0), message, signature],
  ])('%s is refused', (_, key, text, candidate) => {
    expect(verifyEd25519(key, text, candidate)).toBe(false);
  });

  test('S must be below the group order, even if the platform accepts more', () => {
    expect(isCanonicalSignature(signature)).toBe(true);
    expect(isCanonicalSignature(withLargerS())).toBe(false);
    expect(isCanonicalSignature(signature.subarray(1))).toBe(false);
  });

  function withLargerS(): Uint8Array {
    return plusGroupOrder(concat([new Uint8Array(4), signature])).subarray(4);
  }
});
