import { createPublicKey, verify } from 'node:crypto';
import {
  createDidKeyResolver,
  createMemorySingleUseStore,
  createRevocationSet,
  createVerifier,
  generateSigner,
  mintDelegation,
  publicKeyFromDid,
  readToken,
  type SingleUseStore,
  systemClock,
} from '@sibyl/ucan';
import { pino } from 'pino';
import { describe, expect, it } from 'vitest';
import { OracleAuthority } from './oracle-identity.js';

const oracle = generateSigner();
const user = generateSigner();
const resolver = createDidKeyResolver();
const inSeconds = (seconds: number) => Math.floor(Date.now() / 1000) + seconds;

const createSingleUse = () => createMemorySingleUseStore({ clock: systemClock });

function openAuthority(singleUse: SingleUseStore = createSingleUse()) {
  const verifierFor = () =>
    createVerifier({
      audience: oracle.did,
      resolver,
      revocations: createRevocationSet({ clock: systemClock }),
      singleUse,
    });
  const logger = pino({ level: 'silent' });
  return new OracleAuthority({ signer: oracle, resolver, verifierFor, logger });
}

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

  it('refuses every invocation while its use cannot be stored', async () => {
    const away = async () => {
      throw new Error('connect ECONNREFUSED');
    };
    const authority = openAuthority({ ...createSingleUse(), claim: away });
    expect(await authority.acceptOnce(mint(), wanted)).toEqual({
      error: 'the invocation cannot be checked now; try again with a new one',
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
  const delivery = { id: 'msg_1', timestamp: 1_700_000_000, body: '{"a":1}' };

  it('signs id, time and body with the key of the oracle', () => {
    const [version, signature = ''] = openAuthority().signWebhook(delivery).split(',');
    expect(version).toBe('v1a');
    const { ok: raw } = publicKeyFromDid(oracle.did);
    const x = Buffer.from(raw ?? []).toString('base64url');
    const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
    const text = Buffer.from('msg_1.1700000000.{"a":1}');
    expect(verify(null, text, key, Buffer.from(signature, 'base64'))).toBe(true);
  });

  it.each(['eyJhbGciOiJFZERTQSJ9', 'msg_', 'msg_a b', 'xmsg_1'])('refuses the id %s', (id) => {
    expect(() => openAuthority().signWebhook({ ...delivery, id })).toThrow('msg_');
  });
});
