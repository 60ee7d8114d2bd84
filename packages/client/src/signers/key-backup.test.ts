import { describe, expect, it } from 'vitest';
import {
  decryptKeyBackup,
  encryptKeyBackup,
  packSeed,
  readBackupDid,
  unpackSeed,
} from './key-backup.js';

const seed = Uint8Array.from({ length: 32 }, (_, i) => i);
const subject = { did: 'did:key:z6MkExample', name: 'Field office' };
const backup = encryptKeyBackup(seed, 'secret', subject);
const change = (text: string, fields: object) => JSON.stringify({ ...JSON.parse(text), ...fields });

describe('encryptKeyBackup', () => {
  it('decryptKeyBackup returns the key for the right passphrase, in any Unicode form', async () => {
    const text = await encryptKeyBackup(seed, 'caf\u00e9 horse battery', subject);
    expect(await decryptKeyBackup(text, 'cafe\u0301 horse battery')).toEqual({
      seed,
      name: 'Field office',
    });
    expect(readBackupDid(text)).toBe(subject.did);
    await expect(decryptKeyBackup(text, 'cafe horse battery')).rejects.toMatchObject({
      code: 'key_passphrase_wrong',
    });
  });

  it('contains no trace of the key, and two backups share nothing secret', async () => {
    const [one = '', two = ''] = await Promise.all([
      encryptKeyBackup(seed, 'same', subject),
      encryptKeyBackup(seed, 'same', subject),
    ]);
    const [a, b] = [JSON.parse(one), JSON.parse(two)];
    expect(a.iterations).toBeGreaterThanOrEqual(600_000);
    for (const field of ['salt', 'iv', 'ciphertext']) expect(a[field]).not.toBe(b[field]);
    expect(one).not.toContain(Buffer.from(seed).toString('base64').slice(0, 20));
  });

  it.each([
    ['a text', 'hello', /not a backup/],
    ['null', 'null', /not a backup/],
    ['another file', '{"format":"other"}', /not a backup/],
    ['a newer version', { version: 2 }, /newer version/],
    ['another cipher', { cipher: 'none' }, /damaged/],
    ['endless iterations', { iterations: 1e12 }, /damaged/],
    ['invalid base64', { salt: '%' }, /damaged/],
    ['a changed ciphertext', { ciphertext: btoa('x'.repeat(48)) }, /Wrong passphrase/],
  ])('decryptKeyBackup refuses %s', async (_, fields, message) => {
    const text = typeof fields === 'string' ? fields : change(await backup, fields);
    await expect(decryptKeyBackup(text, 'secret')).rejects.toThrow(message);
  });
});

describe('packSeed', () => {
  it('unpackSeed returns the key for the right number only', async () => {
    const packed = await packSeed(seed, '482107');
    expect(packed).toHaveLength(16 + 12 + 32 + 16);
    expect(await unpackSeed(packed, '482107')).toEqual(seed);
    await expect(unpackSeed(packed, '482108')).rejects.toThrow('Wrong passphrase');
    await expect(unpackSeed(packed.slice(0, 40), '482107')).rejects.toThrow('Wrong passphrase');
  });
});
