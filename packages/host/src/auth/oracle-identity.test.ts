import { createPublicKey, verify } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigError } from '@sibyl/server-kit/environment';
import {
  createDidKeyResolver,
  createMemorySingleUseStore,
  createRevocationSet,
  createVerifier,
  type DidResolver,
  exportPrivateKey,
  generateSigner,
  mintDelegation,
  publicKeyFromDid,
  type Revocations,
  readToken,
  type SingleUseStore,
  signerFromMnemonic,
  systemClock,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { loadConfig } from '../config/config.js';
import {
  findOracleIdentity,
  loadOracleIdentity,
  OracleAuthority,
  toKeyFilePath,
} from './oracle-identity.js';

const oracle = generateSigner();
const user = generateSigner();
const resolver = createDidKeyResolver();
const inSeconds = (seconds: number) => Math.floor(Date.now() / 1000) + seconds;

const createSingleUse = () => createMemorySingleUseStore({ clock: systemClock });

interface Choice {
  readonly singleUse?: SingleUseStore;
  readonly services?: DidResolver;
  readonly revocations?: Revocations;
  /** Receives those whose tokens are verified. */
  readonly issuers?: string[];
}

function openAuthority({
  singleUse = createSingleUse(),
  services = resolver,
  revocations = createRevocationSet({ clock: systemClock }),
  issuers = [],
}: Choice = {}) {
  const verifierFor = (issuer: string) => {
    issuers.push(issuer);
    return createVerifier({ audience: oracle.did, resolver, revocations, singleUse });
  };
  const logger = pino({ level: 'silent' });
  return new OracleAuthority({ signer: oracle, resolver: services, verifierFor, logger });
}

describe('the identity of the oracle', () => {
  const key = generateSigner();
  const ownKey = { ORACLE_PRIVATE_KEY: exportPrivateKey(key) };
  let dataDir: string;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'sibyl-identity-'));
  });
  afterEach(() => rm(dataDir, { recursive: true }));
  const configure = (env: Readonly<Record<string, string>> = {}) =>
    loadConfig({ DATA_DIR: dataDir, ...env });

  it('has a key that the first start creates, which only the owner of the file can read', async () => {
    expect(await findOracleIdentity(configure())).toBeUndefined();
    const { did } = await loadOracleIdentity(configure());
    const path = toKeyFilePath(dataDir);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await loadOracleIdentity(configure())).did).toBe(did);
    expect((await findOracleIdentity(configure()))?.did).toBe(did);
    expect(await readFile(path, 'utf8')).not.toContain(did);
  });

  it.each([
    ['loadOracleIdentity', loadOracleIdentity],
    ['findOracleIdentity', findOracleIdentity],
  ])('has the key of the configuration, and %s creates no file then', async (_, open) => {
    expect((await open(configure(ownKey)))?.did).toBe(key.did);
    const words = await open(configure({ ORACLE_MNEMONIC: 'some words' }));
    expect(words?.did).toBe(signerFromMnemonic('some words').ok?.did);
    expect(existsSync(toKeyFilePath(dataDir))).toBe(false);
  });

  it('has the names of the configuration, and signs under its DID', async () => {
    const identity = await loadOracleIdentity(
      configure({
        ...ownKey,
        ORACLE_NAME: 'Pythia',
        ORACLE_DID: 'did:web:oracle.example',
        ORACLE_ENTITY_DID: 'did:ixo:entity:abc',
      }),
    );
    expect(identity).toMatchObject({
      name: 'Pythia',
      did: 'did:web:oracle.example',
      entityDid: 'did:ixo:entity:abc',
      signer: { keyDid: key.did },
    });
  });

  /** What an operator is asked to correct. */
  const readIssues = (loading: Promise<unknown>) =>
    loading.then(
      () => [],
      (error) => (error instanceof ConfigError ? error.issues : [error]),
    );

  it('is refused with the DID of another key', async () => {
    const other = generateSigner().did;
    expect(
      await readIssues(loadOracleIdentity(configure({ ...ownKey, ORACLE_DID: other }))),
    ).toEqual([
      {
        subject: 'ORACLE_DID (host)',
        problem: expect.stringContaining(other),
        remedy: expect.stringContaining('Unset it'),
      },
    ]);
  });

  it.each([
    ['ORACLE_PRIVATE_KEY (host)', { privateKey: 'none' }],
    ['ORACLE_MNEMONIC (host)', { mnemonic: ' ' }],
  ])('is refused with an invalid %s', async (subject, fields) => {
    const config = configure();
    const loading = loadOracleIdentity({ ...config, oracle: { ...config.oracle, ...fields } });
    expect(await readIssues(loading)).toEqual([
      {
        subject,
        problem: expect.stringMatching(/.+/),
        remedy: expect.stringContaining('generate a key'),
      },
    ]);
    expect(existsSync(toKeyFilePath(dataDir))).toBe(false);
  });

  it('is refused with a damaged key file, which stays as it is', async () => {
    const path = toKeyFilePath(dataDir);
    await writeFile(path, 'damaged');
    for (const open of [loadOracleIdentity, findOracleIdentity])
      expect(await readIssues(open(configure()))).toMatchObject([
        { subject: path, remedy: expect.stringContaining('backup') },
      ]);
    expect(await readFile(path, 'utf8')).toBe('damaged');
  });
});

describe('OracleAuthority.acceptOnce', () => {
  const wanted = { can: 'task/push', with: 'task:1', issuer: user.did };

  function mint(fields: Partial<Parameters<typeof mintDelegation>[0]> = {}): string {
    const { ok, error } = mintDelegation({
      signer: user,
      audience: oracle.did,
      capabilities: [{ can: wanted.can, with: wanted.with }],
      expiration: inSeconds(60),
      ...fields,
    });
    if (error) throw new Error(error.detail);
    return ok.token;
  }

  it('accepts an invocation once', async () => {
    const authority = openAuthority();
    const token = mint();
    expect(await authority.acceptOnce(token, wanted)).toEqual({ ok: true });
    expect(await authority.acceptOnce(token, wanted)).toEqual({
      error: 'the invocation was used before',
    });
  });

  it.each([
    ['another user', { signer: generateSigner() }],
    ['another oracle', { audience: generateSigner().did }],
    ['another resource', { capabilities: [{ can: wanted.can, with: 'task:2' }] }],
    ['another ability', { capabilities: [{ can: 'task/get', with: wanted.with }] }],
  ])('refuses an invocation of %s without saying why', async (_, fields) => {
    expect(await openAuthority().acceptOnce(mint(fields), wanted)).toEqual({
      error: 'the invocation is not valid for this call',
    });
  });

  it('refuses an expired invocation', async () => {
    const token = mint({ expiration: inSeconds(-120) });
    expect(await openAuthority().acceptOnce(token, wanted)).toEqual({
      error: 'the invocation has expired',
    });
  });

  const away = async () => {
    throw new Error('connect ECONNREFUSED');
  };
  it.each<[string, Choice]>([
    ['its use cannot be stored', { singleUse: { ...createSingleUse(), claim: away } }],
    ['it may be revoked', { revocations: { isRevoked: away } }],
  ])('throws store_unavailable while %s', async (_, choice) => {
    await expect(openAuthority(choice).acceptOnce(mint(), wanted)).rejects.toMatchObject({
      code: 'store_unavailable',
      retryAfterSeconds: expect.any(Number),
    });
  });

  it('records the use for the user who is expected to have signed, not for the signer', async () => {
    const issuers: string[] = [];
    await openAuthority({ issuers }).acceptOnce(mint({ signer: generateSigner() }), wanted);
    expect(issuers).toEqual([user.did]);
  });
});

describe('OracleAuthority.resolveServiceDid', () => {
  const url = 'https://files.example';

  it('returns the did:web of an address whose document proves it', async () => {
    const asked: string[] = [];
    const resolve = async (did: string) => {
      asked.push(did);
      return { ok: [] };
    };
    const authority = openAuthority({ services: { resolve } });
    expect(await authority.resolveServiceDid(url)).toBe('did:web:files.example');
    expect(asked).toEqual(['did:web:files.example']);
  });

  it('refuses an address without a document', async () => {
    await expect(openAuthority().resolveServiceDid(url)).rejects.toMatchObject({
      code: 'forbidden',
      message: expect.stringContaining(`${url} does not prove its DID`),
    });
  });
});

describe('OracleAuthority.mintInvocation', () => {
  const service = generateSigner().did;
  const mint = async (ttlSeconds?: number) => {
    const wanted = { audience: service, can: 'mail/send', with: 'mailto:a@b.c', nb: { n: 1 } };
    const more = ttlSeconds === undefined ? {} : { ttlSeconds };
    const { ok } = readToken(await openAuthority().mintInvocation({ ...wanted, ...more }));
    if (!ok) throw new Error('not a token');
    return ok.root;
  };

  it('signs exactly what is wanted, as the oracle, with no proofs', async () => {
    const root = await mint();
    expect(root).toMatchObject({ issuer: oracle.did, audience: service });
    expect(root.capabilities).toEqual([{ can: 'mail/send', with: 'mailto:a@b.c', nb: { n: 1 } }]);
    expect(root.proofs).toEqual([]);
    expect((await mint()).cid).not.toBe(root.cid);
  });

  it('signs no caveats if none are wanted', async () => {
    const wanted = { audience: service, can: 'mail/send', with: 'mailto:a@b.c' };
    const { ok } = readToken(await openAuthority().mintInvocation(wanted));
    expect(ok?.root.capabilities).toEqual([{ can: 'mail/send', with: 'mailto:a@b.c' }]);
  });

  it.each([
    ['five minutes by default', undefined, 300],
    ['as long as it is wanted', 60, 60],
    ['at least five seconds', 0, 5],
  ])('is valid %s', async (_, ttl, seconds) => {
    const before = inSeconds(seconds);
    const { expiration } = await mint(ttl);
    expect(expiration).toBeGreaterThanOrEqual(before);
    expect(expiration).toBeLessThanOrEqual(inSeconds(seconds));
  });

  it('says why nothing was signed', async () => {
    const wanted = { audience: 'no-did', can: 'mail/send', with: 'mailto:a@b.c' };
    await expect(openAuthority().mintInvocation(wanted)).rejects.toMatchObject({
      code: 'forbidden',
      message: expect.stringMatching(/^Nothing was signed: .+/),
    });
  });
});

describe('OracleAuthority.signWebhook', () => {
  const delivery = { id: 'msg_a-1_B', timestamp: 1_700_000_000, body: '{"a":1}' };

  it('signs id, time and body with the key of the oracle', () => {
    const [version, signature = ''] = openAuthority().signWebhook(delivery).split(',');
    expect(version).toBe('v1a');
    const { ok: raw } = publicKeyFromDid(oracle.did);
    const x = Buffer.from(raw ?? []).toString('base64url');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    const text = Buffer.from('msg_a-1_B.1700000000.{"a":1}');
    expect(verify(null, text, key, Buffer.from(signature, 'base64'))).toBe(true);
  });

  it.each(['eyJhbGciOiJFZERTQSJ9', 'msg_', 'msg_a b', 'xmsg_1', 'msg_1 ', 'msg_1.2'])(
    'refuses the id %s',
    (id) => {
      expect(() => openAuthority().signWebhook({ ...delivery, id })).toThrow('msg_');
    },
  );
});
