import { createOracleClient, createSigner, type OracleSigner } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { Delegation, delegate } from '@ucanto/core';
import { ed25519, Verifier } from '@ucanto/principal';
import { access, capability, Schema } from '@ucanto/validator';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startHost, type TestHost } from '../../host/test/support/host.js';

let host: TestHost;
beforeAll(async () => {
  host = await startHost();
});
afterAll(() => host.close());

type Principal = Parameters<typeof delegate>[0]['audience'];
const parsePrincipal = (did: string) => Verifier.parse(did as `did:key:${string}`) as Principal;

/** A wallet that mints its tokens with ucanto only. */
async function ucantoWallet(): Promise<OracleSigner> {
  const issuer = await ed25519.generate();
  const mint = async (audience: string, capabilities: object[], expiration: number) => {
    const minted = await delegate({
      issuer,
      audience: parsePrincipal(audience),
      capabilities: capabilities as never,
      expiration,
      facts: [{ nonce: crypto.randomUUID() }],
    });
    const { ok } = await minted.archive();
    return {
      cid: minted.cid.toString(),
      token: Buffer.from(ok ?? []).toString('base64'),
      expiration,
    };
  };
  return {
    did: issuer.did(),
    invoke: ({ audience, now }) => mint(audience, [{ can: '*', with: 'ixo:oracle' }], now + 300),
    delegate: ({ audience, capabilities, expiration }) =>
      mint(audience, [...capabilities], expiration),
  };
}

describe('OracleSigner and ucanto', () => {
  it('the client works with tokens minted by ucanto', async () => {
    const client = createOracleClient({ url: host.url, signer: await ucantoWallet() });
    const { sessionId } = await client.sessions.create();
    expect((await client.messages.send(sessionId, 'hello')).sessionId).toBe(sessionId);
    const parts = [];
    for await (const { event } of client.stream(sessionId, 'again')) parts.push(event);
    expect(parts.at(-1)).toBe('done');
    await client.delegation.grant({
      capabilities: [{ can: 'store/*', with: client.did as never }],
    });
    expect(await client.delegation.status()).toMatchObject({ authorized: true });
    const events = client.events(sessionId);
    await events.ready();
    client.close();
  });

  it('ucanto validates tokens of createSigner', async () => {
    const signer = createSigner(generateSigner());
    const audience = host.did;
    const now = Math.floor(Date.now() / 1000);
    const minted = await signer.delegate({
      audience,
      capabilities: [{ can: 'store/add', with: signer.did }],
      expiration: now + 60,
    });
    const { ok: read } = await Delegation.extract(Buffer.from(minted.token, 'base64'));
    if (!read) throw new Error('ucanto cannot read it');
    expect(read.cid.toString()).toBe(minted.cid);
    expect([read.issuer.did(), read.audience.did(), read.expiration]).toEqual([
      signer.did,
      audience,
      now + 60,
    ]);
    expect(await proveStoring(read, audience)).toMatchObject({ ok: {} });
  });

  it('ucanto rejects a delegation of createSigner for a resource of another user', async () => {
    const signer = createSigner(generateSigner());
    const { token } = await signer.delegate({
      audience: host.did,
      capabilities: [{ can: 'store/add', with: generateSigner().did }],
      expiration: Math.floor(Date.now() / 1000) + 60,
    });
    const { ok: read } = await Delegation.extract(Buffer.from(token, 'base64'));
    if (!read) throw new Error('ucanto cannot read it');
    expect((await proveStoring(read, host.did)).error).toBeDefined();
  });
});

/** Validates a delegation with ucanto's validator. */
async function proveStoring(delegation: object, audience: string) {
  const store = capability({
    can: 'store/add',
    with: Schema.did(),
    derives: (claimed, granted) =>
      claimed.with === granted.with ? { ok: {} } : { error: new Error('another store') },
  });
  return access(delegation as never, {
    capability: store,
    authority: parsePrincipal(audience) as never,
    principal: Verifier,
    validateAuthorization: () => ({ ok: {} }),
  });
}
