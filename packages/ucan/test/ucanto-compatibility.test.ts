import { expect, test } from 'vitest';
import { delegateWithUcanto, toArchive } from './support/ucanto-tokens.js';
import { alice, bob, NOW, oracle, verifierWith } from './support/verifier.js';

const AUTH = { can: '*', with: 'ixo:oracle' };

test('an invocation made by ucanto names its caller', async () => {
  const made = await delegateWithUcanto(alice, {
    audience: oracle.did,
    capabilities: [AUTH],
    expiration: NOW + 300,
  });
  const verdict = await verifierWith().verifyInvocation(await toArchive(made));
  expect(verdict.ok).toMatchObject({
    did: alice.did,
    cid: made.cid.toString(),
    expiration: NOW + 300,
  });
});

test('a chain made by ucanto is a delegation of its outermost issuer', async () => {
  const grant = await delegateWithUcanto(alice, {
    audience: bob.did,
    capabilities: [{ can: 'store/*', with: 'ixo:files/*', nb: { space: 'a', deep: { x: [1] } } }],
    expiration: NOW + 3000,
    notBefore: NOW - 10,
    nonce: 'n',
    facts: [{ é: 'ü', '\u{1F600}': 1, '\uFB01': 2, bytes: new Uint8Array([1, 2]) }],
  });
  const made = await delegateWithUcanto(bob, {
    audience: oracle.did,
    capabilities: [
      { can: 'store/add', with: 'ixo:files/1', nb: { deep: { x: [1] }, space: 'a', size: 0.5 } },
    ],
    expiration: NOW + 300,
    notBefore: NOW - 5,
    proofs: [grant],
  });
  const verdict = await verifierWith().verifyDelegation(await toArchive(made));
  expect(verdict.error).toBeUndefined();
  expect(verdict.ok).toMatchObject({
    did: bob.did,
    cids: [grant.cid.toString(), made.cid.toString()],
    issuers: [alice.did, bob.did],
  });
});
