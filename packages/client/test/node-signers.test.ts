import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { OracleClientError, type OracleSigner } from '@sibyl/client';
import { openKeyFile, signerFromMnemonic, signerFromPrivateKey } from '@sibyl/client/node';
import { exportPrivateKey, generateSigner } from '@sibyl/ucan';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from '../../host/test/support/host.js';
import { createTestClient } from './support/client.js';

const MNEMONIC = `${'abandon '.repeat(11)}about`;
const MNEMONIC_DID = 'did:key:z6MkpPcjwo4wP49VnvG7isXnqvFJyEqZ5JxSjohHxTT9Zr1c';

let folder: string;
let host: TestHost;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sibyl-keys-'));
  host = await startHost();
});
afterAll(async () => {
  await host.close();
  await rm(folder, { recursive: true, force: true });
});

const isAccepted = async (signer: OracleSigner) => {
  const { total } = await createTestClient(host, { signer }).sessions.list();
  return total === 0;
};

describe('openKeyFile', () => {
  it('creates a missing file, readable only by its owner, and opens it again', async () => {
    const path = join(folder, 'deep', 'user.key');
    const signer = await openKeyFile(path);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await openKeyFile(path)).did).toBe(signer.did);
    expect(signerFromPrivateKey(await readFile(path, 'utf8')).did).toBe(signer.did);
    expect(await isAccepted(signer)).toBe(true);
  });

  it('creates one key when called several times at once', async () => {
    const path = join(folder, 'race.key');
    const signers = await Promise.all(Array.from({ length: 20 }, () => openKeyFile(path)));
    expect(new Set(signers.map(({ did }) => did)).size).toBe(1);
  });

  it('names an invalid file and does not change it', async () => {
    const path = join(folder, 'broken.key');
    await writeFile(path, 'nonsense');
    const opening = openKeyFile(path);
    await expect(opening).rejects.toMatchObject({ code: 'key_invalid' });
    await expect(opening).rejects.toThrow(path);
    expect(await readFile(path, 'utf8')).toBe('nonsense');
  });
});

describe('signers from text', () => {
  it('signerFromMnemonic accepts a mnemonic', async () => {
    const signer = signerFromMnemonic(` ${MNEMONIC}\n`);
    expect(signer.did).toBe(MNEMONIC_DID);
    expect(await isAccepted(signer)).toBe(true);
  });

  it('signerFromPrivateKey accepts an exported key', async () => {
    const key = generateSigner();
    const signer = signerFromPrivateKey(exportPrivateKey(key));
    expect(signer.did).toBe(key.did);
    expect(await isAccepted(signer)).toBe(true);
  });

  it.each([
    ['signerFromMnemonic', () => signerFromMnemonic(' ')],
    ['signerFromPrivateKey', () => signerFromPrivateKey('M123')],
  ])('%s rejects invalid text', (_, make) => {
    expect(make).toThrow(OracleClientError);
  });
});
