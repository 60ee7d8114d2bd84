import { Delegation } from '@ucanto/core';
import { describe, expect, test } from 'vitest';
import { ucantoCases } from '../../test/support/ucanto-cases.js';
import { delegateWithUcanto, toArchive } from '../../test/support/ucanto-tokens.js';
import {
  alice,
  bob,
  clock,
  NOW,
  oracle,
  unwrap,
  verifierWith,
} from '../../test/support/verifier.js';
import { readToken } from '../read/read-token.js';
import {
  buildServiceRequest,
  createMinter,
  type DelegationRequest,
  type InvocationRequest,
  mintAuthInvocation,
  mintDelegation,
  mintInvocation,
} from './mint.js';

const service = 'did:web:files.example';
const grant = { can: 'store/*', with: 'ixo:files/*' };

const granted = async (expiration = NOW + 3600, more: Partial<DelegationRequest> = {}) => {
  const request = { signer: alice, audience: oracle.did, capabilities: [grant], expiration };
  const minted = unwrap(mintDelegation({ ...request, ...more }));
  return unwrap(await verifierWith().verifyDelegation(minted.token));
};

const requestOn = async (more: Partial<InvocationRequest> = {}): Promise<InvocationRequest> => ({
  signer: oracle,
  delegation: await granted(),
  audience: service,
  can: 'store/add',
  with: 'ixo:files/1',
  clock,
  ...more,
});

describe('an auth invocation', () => {
  test('names its caller and is never the same twice', async () => {
    const mint = () => unwrap(mintAuthInvocation({ signer: alice, audience: oracle.did, clock }));
    const minted = mint();
    expect(await verifierWith().verifyInvocation(minted.token)).toMatchObject({
      ok: { did: alice.did, cid: minted.cid, expiration: NOW + 300 },
    });
    expect(mint().token).not.toBe(minted.token);
    expect(minted.token.length).toBeLessThan(650);
  });

  test('needs an audience', () => {
    const minted = mintAuthInvocation({ signer: alice, audience: 'oracle' });
    expect(minted.error?.code).toBe('mint_invalid');
  });

  test('can be read by ucanto', async () => {
    const { token, cid } = unwrap(mintAuthInvocation({ signer: alice, audience: oracle.did }));
    const theirs = await Delegation.extract(Buffer.from(token, 'base64'));
    expect(theirs.ok?.cid.toString()).toBe(cid);
    expect(theirs.ok?.capabilities).toEqual([{ can: '*', with: 'ixo:oracle' }]);
  });
});

describe('a delegation', () => {
  test.each(ucantoCases)('has the bytes ucanto writes: $name', async ({ fields }) => {
    const minted = mintDelegation({ ...(fields as never as DelegationRequest), signer: alice });
    expect(unwrap(minted).token).toBe(await toArchive(await delegateWithUcanto(alice, fields)));
  });

  test('may rest on two proofs', async () => {
    const proofs = ['1', '2'].map((name) => {
      const capabilities = [{ can: 'store/*', with: `ixo:files/${name}` }];
      const request = { signer: alice, audience: bob.did, capabilities, expiration: NOW + 60 };
      return unwrap(mintDelegation(request)).token;
    });
    const delegation = await granted(NOW + 60, {
      signer: bob,
      capabilities: ['1', '2'].map((name) => ({ can: 'store/add', with: `ixo:files/${name}` })),
      proofs,
    });
    expect(delegation).toMatchObject({ did: bob.did, cids: { length: 3 } });
  });

  test.each<[string, Partial<DelegationRequest>]>([
    ['escalation', { capabilities: [{ can: '*', with: 'ixo:files/1' }] }],
    ['time_bounds', { expiration: NOW + 3601 }],
    ['chain_broken', { signer: bob }],
    ['base64_invalid', { proofs: ['nonsense!'] }],
  ])('that its proofs do not bear out is not minted: %s', async (code, more) => {
    const { token } = await granted();
    const minted = mintDelegation({
      signer: oracle,
      audience: bob.did,
      capabilities: [grant],
      expiration: NOW + 60,
      proofs: [token],
      ...more,
    });
    expect(minted.error?.code).toBe(code);
  });

  test.each<[string, Partial<DelegationRequest>]>([
    ['capitals', { capabilities: [{ can: 'Store/Add', with: 'a:b' }] }],
    ['half a surrogate pair', { facts: [{ a: '\uD800' }] }],
    ['a resource that is not a URI', { capabilities: [{ can: 'a/b', with: 'x' }] }],
    ['a fraction of a second', { expiration: NOW + 0.5 }],
    ['a number beyond 2^53', { facts: [{ a: 2 ** 60 }] }],
    ['a key that DAG-JSON reserves', { facts: [{ a: { '/': 'b' } }] }],
    ['65 capabilities', { capabilities: new Array(65).fill(grant) }],
  ])('that cannot be read is not minted: %s', (_, more) => {
    const request = { signer: alice, audience: bob.did, capabilities: [grant], expiration: NOW };
    expect(mintDelegation({ ...request, ...more }).error?.code).toBe('mint_invalid');
  });
});

describe('an invocation of a service', () => {
  test('carries its proof, a nonce and the life of a few minutes', async () => {
    const request = await requestOn({ nb: { size: 1 } });
    const minted = unwrap(mintInvocation(request));
    const { root, ucans } = unwrap(readToken(minted.token));
    expect([...ucans.keys()]).toEqual([request.delegation.cid, minted.cid]);
    expect(root).toMatchObject({
      issuer: oracle.did,
      audience: service,
      expiration: NOW + 300,
      capabilities: [{ can: 'store/add', with: 'ixo:files/1', nb: { size: 1 } }],
      facts: [{ nonce: expect.stringMatching(/^[\w-]{16}$/) }],
    });
  });

  test('is a chain that passes our own rules at the service', async () => {
    const delegation = await granted(NOW + 3600, { notBefore: NOW - 10 });
    const minted = unwrap(mintInvocation(await requestOn({ delegation })));
    const verdict = await verifierWith({ audience: service }).verifyDelegation(minted.token);
    expect(verdict).toMatchObject({ ok: { did: oracle.did, expiration: NOW + 300 } });
  });

  test('does not outlive the delegation', async () => {
    const request = await requestOn({ delegation: await granted(NOW + 100) });
    expect(unwrap(mintInvocation(request)).expiration).toBe(NOW + 100);
  });

  test.each([
    ['5 s are enough', 5, undefined],
    ['4 s are not', 4, 'too_short_lived'],
  ])('%s', async (_, seconds, code) => {
    const request = await requestOn({ delegation: await granted(NOW + seconds) });
    expect(mintInvocation(request).error?.code).toBe(code);
    expect(mintInvocation(await requestOn({ ttlSeconds: seconds })).error?.code).toBe(code);
  });

  test.each<[string, Partial<InvocationRequest>]>([
    ['not_covered', { can: 'mail/send' }],
    ['not_covered', { with: 'ixo:mail/1' }],
    ['not_covered', { can: '*' }],
    ['chain_broken', { signer: bob }],
    ['mint_invalid', { audience: 'files.example' }],
  ])('is refused: %s', async (code, more) => {
    expect(mintInvocation(await requestOn(more)).error?.code).toBe(code);
  });

  test('is signed under the DID of an oracle that has another than its key', async () => {
    const signer = unwrap(oracle.withDid('did:ixo:oracle'));
    const minted = unwrap(
      mintDelegation({
        signer: alice,
        audience: signer.did,
        capabilities: [grant],
        expiration: NOW + 60,
      }),
    );
    const verifier = verifierWith({ audience: signer.did });
    const delegation = unwrap(await verifier.verifyDelegation(minted.token));
    const invocation = unwrap(mintInvocation(await requestOn({ signer, delegation })));
    expect(unwrap(readToken(invocation.token)).root.issuer).toBe('did:ixo:oracle');
  });

  test('is wrapped for a service only if it is a token', () => {
    const request = buildServiceRequest({ token: 'nonsense', cid: '', expiration: 0 });
    expect(request.error?.code).toBe('mint_invalid');
  });
});

describe('the minter', () => {
  const minterAt = (now: () => number, cacheBytes = 1e6) =>
    createMinter({ signer: oracle, clock: now, cacheBytes });

  test('reuses a token for half its life', async () => {
    let now = NOW;
    const minter = minterAt(() => now);
    const request = await requestOn();
    const first = unwrap(minter.mint(request));
    now = NOW + 149;
    expect(unwrap(minter.mint(request))).toBe(first);
    now = NOW + 150;
    expect(unwrap(minter.mint(request))).not.toBe(first);
  });

  test('hands out no token with less than 30 s left', async () => {
    let now = NOW;
    const minter = minterAt(() => now);
    const request = await requestOn({ ttlSeconds: 40 });
    const first = unwrap(minter.mint(request));
    now = NOW + 9;
    expect(unwrap(minter.mint(request))).toBe(first);
    now = NOW + 10;
    expect(unwrap(minter.mint(request))).not.toBe(first);
  });

  test('createMinter distinguishes requests that differ in anything', async () => {
    const minter = minterAt(clock);
    const requests = await Promise.all([
      requestOn(),
      requestOn({ delegation: await granted(NOW + 3599) }),
      requestOn({ audience: 'did:web:other.example' }),
      requestOn({ can: 'store/remove' }),
      requestOn({ with: 'ixo:files/2' }),
      requestOn({ nb: { a: 1 } }),
      requestOn({ nb: { a: 2 } }),
      requestOn({ ttlSeconds: 200 }),
    ]);
    const cids = requests.map((request) => unwrap(minter.mint(request)).cid);
    expect(new Set(cids).size).toBe(requests.length);
    expect(requests.map((request) => unwrap(minter.mint(request)).cid)).toEqual(cids);
  });

  test('createMinter distinguishes users even under one delegation', async () => {
    const minter = minterAt(clock);
    const delegation = await granted();
    const other = { ...delegation, did: bob.did };
    const first = unwrap(minter.mint(await requestOn({ delegation })));
    expect(unwrap(minter.mint(await requestOn({ delegation: other }))).cid).not.toBe(first.cid);
  });

  test('forgets what came of a delegation', async () => {
    const minter = minterAt(clock);
    const request = await requestOn();
    const first = unwrap(minter.mint(request));
    expect(minter.forget('another')).toBe(0);
    expect(minter.forget(request.delegation.cid)).toBe(1);
    expect(unwrap(minter.mint(request)).cid).not.toBe(first.cid);
  });

  test('is bounded and keeps no failure', async () => {
    const minter = minterAt(clock, 4000);
    const [one, two] = [await requestOn(), await requestOn({ with: 'ixo:files/2' })];
    const first = unwrap(minter.mint(one));
    minter.mint(two);
    expect(unwrap(minter.mint(one)).cid).not.toBe(first.cid);
    expect(minter.mint(await requestOn({ can: 'mail/send' })).error?.code).toBe('not_covered');
  });
});
