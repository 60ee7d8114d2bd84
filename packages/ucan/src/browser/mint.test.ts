import { describe, expect, test } from 'vitest';
import { ucantoCases } from '../../test/support/ucanto-cases.js';
import { delegateWithUcanto, toArchive } from '../../test/support/ucanto-tokens.js';
import { alice, NOW, oracle, unwrap, verifierWith } from '../../test/support/verifier.js';
import { systemClock } from '../codec/ucan.js';
import { createDidKeyResolver } from '../did/did-key.js';
import { readToken } from '../read/read-token.js';
import {
  createWebSigner,
  generateWebKeyPair,
  mintAuthInvocation,
  mintDelegation,
  type WebKeyPair,
} from './mint.js';

/** The key of alice as WebCrypto holds it, not extractable. */
async function keyPairOfAlice(): Promise<WebKeyPair> {
  const der = Buffer.concat([
    Buffer.from('302e020100300506032b657004220420', 'hex'),
    alice.exportSeed(),
  ]);
  return {
    privateKey: await crypto.subtle.importKey('pkcs8', der, 'Ed25519', false, ['sign']),
    publicKey: await crypto.subtle.importKey('raw', Buffer.from(alice.publicKey), 'Ed25519', true, [
      'verify',
    ]),
  };
}

describe('the browser minter', () => {
  test('signs under the did:key of a key that cannot be extracted', async () => {
    const keys = await keyPairOfAlice();
    expect(keys.privateKey.extractable).toBe(false);
    expect((await createWebSigner(keys)).did).toBe(alice.did);
  });

  test.each(ucantoCases)('writes the bytes ucanto writes: $name', async ({ fields }) => {
    const signer = await createWebSigner(await keyPairOfAlice());
    const ours = unwrap(await mintDelegation({ signer, ...(fields as never as typeof request) }));
    const theirs = await delegateWithUcanto(alice, fields);
    expect(ours.cid).toBe(theirs.cid.toString());
    expect(ours.token).toBe(await toArchive(theirs));
  });
  const request = { audience: '', capabilities: [], expiration: 0 };

  test('mints a bearer that the host accepts', async () => {
    const signer = await createWebSigner(await generateWebKeyPair());
    const minted = unwrap(await mintAuthInvocation({ signer, audience: oracle.did }));
    const verifier = verifierWith({ clock: systemClock, resolver: createDidKeyResolver() });
    expect(await verifier.verifyInvocation(minted.token)).toMatchObject({
      ok: { did: signer.did, cid: minted.cid, expiration: minted.expiration },
    });
  });

  test('mints under another DID, at another time, never the same token twice', async () => {
    const signer = await createWebSigner(await keyPairOfAlice(), 'did:ixo:alice');
    const request = { signer, audience: oracle.did, now: NOW, ttlSeconds: 60 };
    const [one, two] = [await mintAuthInvocation(request), await mintAuthInvocation(request)];
    expect(unwrap(one).token).not.toBe(unwrap(two).token);
    expect(unwrap(readToken(unwrap(one).token)).root).toMatchObject({
      issuer: 'did:ixo:alice',
      expiration: NOW + 60,
    });
  });

  test('refuses an audience that is not a DID', async () => {
    const signer = await createWebSigner(await keyPairOfAlice());
    const minted = await mintAuthInvocation({ signer, audience: 'oracle' });
    expect(minted.error?.code).toBe('mint_invalid');
  });
});
