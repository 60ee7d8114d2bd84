import { expect, it } from 'vitest';
import { createVault } from './encryption.js';

const vault = createVault(new Uint8Array(32).fill(1));
const place = ['delegation', 'did:a', 'did:o'];

it('Vault.open decrypts what Vault.seal encrypted', () => {
  for (const text of ['', 'token', 'ünïcödé 🜁', 'x'.repeat(100_000)]) {
    expect(vault.open(vault.seal(text, place), place)).toEqual({ ok: text });
  }
});

it('Vault.seal never returns the same bytes for the same text', () => {
  expect(vault.seal('token', place)).not.toBe(vault.seal('token', place));
});

it('Vault.open fails with another context', () => {
  const sealed = vault.seal('token', place);
  for (const other of [
    [],
    ['delegation', 'did:b', 'did:o'],
    ['delegation', 'did:a', 'did:o', ''],
  ]) {
    expect(vault.open(sealed, other)).toHaveProperty('error');
  }
  const merged = vault.seal('token', ['a', 'bc']);
  expect(vault.open(merged, ['ab', 'c'])).toHaveProperty('error');
});

it('Vault.open fails with another key', () => {
  const other = createVault(new Uint8Array(32).fill(2));
  expect(other.open(vault.seal('token', place), place)).toHaveProperty('error');
});

it('Vault.open fails with any changed bit, truncated or invalid text', () => {
  const sealed = vault.seal('token', place);
  const bytes = Buffer.from(sealed.slice(3), 'base64');
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes);
    changed.writeUInt8(changed.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    expect(vault.open(`v1.${changed.toString('base64')}`, place)).toHaveProperty('error');
  }
  for (const broken of ['', 'v1.', 'v1.AAAA', 'v2.AAAA', 'token', sealed.slice(0, -8)]) {
    expect(vault.open(broken, place)).toHaveProperty('error');
  }
});

it('createVault requires a key of 32 bytes', () => {
  expect(() => createVault(new Uint8Array(16))).toThrow('32 bytes');
});
