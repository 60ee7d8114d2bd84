import { describe, expect, test, vi } from 'vitest';
import { countingResolver, ixoAlice } from '../../test/support/counting-resolver.js';
import { type Forgery, forgeToken, forgeUcan } from '../../test/support/forge.js';
import { linkFrom } from '../../test/support/hostile-chains.js';
import { alice, bob, clock, NOW, oracle, verifierWith } from '../../test/support/verifier.js';
import { createDidKeyResolver } from '../did/did-key.js';
import {
  createMemorySingleUseStore,
  createRevocationSet,
  type SingleUseStore,
} from './revocations.js';

describe('revocation', () => {
  const grant = linkFrom(alice, bob, []);
  const top = linkFrom(bob, oracle, [grant]);
  const chain = forgeToken(grant, top);

  test.each([
    ['the delegation', top],
    ['its proof', grant],
  ])('of %s takes effect at once, despite the cache', async (_, block) => {
    const revocations = createRevocationSet({ clock: () => NOW });
    const verifier = verifierWith({ revocations });
    expect(await verifier.verifyDelegation(chain)).toHaveProperty('ok');
    revocations.add(block.link.toString(), NOW + 300);
    const { error } = await verifier.verifyDelegation(chain);
    expect(error).toMatchObject({ code: 'revoked', cid: top.link.toString(), issuer: bob.did });
  });

  test('is known before any key is looked up', async () => {
    const revocations = createRevocationSet({ clock: () => NOW });
    const ixo = forgeUcan({ signer: ixoAlice });
    revocations.add(ixo.link.toString(), NOW + 300);
    const resolver = countingResolver();
    const verifier = verifierWith({ revocations, resolver });
    const { error } = await verifier.verifyInvocation(forgeToken(ixo));
    expect(error?.code).toBe('revoked');
    expect(resolver.resolve).not.toHaveBeenCalled();
  });

  test('while the keys are being looked up still counts', async () => {
    const revocations = createRevocationSet({ clock: () => NOW });
    const ixo = forgeUcan({ signer: ixoAlice });
    const resolver = countingResolver(async () => {
      revocations.add(ixo.link.toString(), NOW + 300);
      return { ok: [alice.publicKey] };
    });
    const verdict = await verifierWith({ revocations, resolver }).verifyInvocation(forgeToken(ixo));
    expect(verdict.error?.code).toBe('revoked');
  });

  test('that cannot be read refuses everything', async () => {
    const isRevoked = async () => Promise.reject(new Error('down'));
    const verdict = await verifierWith({ revocations: { isRevoked } }).verifyInvocation(
      forgeToken(forgeUcan()),
    );
    expect(verdict.error?.code).toBe('revocations_unavailable');
  });

  test('is remembered until the expiry, and a full memory says so', () => {
    let now = NOW;
    const set = createRevocationSet({ clock: () => now, maxBytes: 200 });
    expect([set.add('a', NOW + 10), set.add('b', NOW + 20), set.add('c', NOW + 30)]).toEqual([
      true,
      true,
      false,
    ]);
    expect(set.add('a', NOW + 5)).toBe(true);
    now = NOW + 9;
    expect(set.isRevoked('a')).toBe(true);
    now = NOW + 10;
    expect(set.isRevoked('a')).toBe(false);
    expect(set.add('c', NOW + 30)).toBe(true);
    expect(set.size).toBe(2);
  });
});

const call = { can: 'mcp/call', with: `ixo:oracle:${oracle.did}:mcp/files/read` };
const expectation = { ...call, issuer: alice.did };

const forged = (forgery: Forgery = {}) =>
  forgeToken(forgeUcan({ ...forgery, payload: { capabilities: [call], ...forgery.payload } }));

const verifierOn = (singleUse: SingleUseStore) => verifierWith({ singleUse });

describe('a single-use token', () => {
  test('is good once', async () => {
    const verifier = verifierOn(createMemorySingleUseStore({ clock }));
    expect(await verifier.verifySingleUse(forged(), expectation)).toHaveProperty(
      'ok.did',
      alice.did,
    );
    const again = await verifier.verifySingleUse(forged(), expectation);
    expect(again.error).toMatchObject({ code: 'replayed', issuer: alice.did });
  });

  test('is good once among a hundred at the same time', async () => {
    const verifier = verifierOn(createMemorySingleUseStore({ clock }));
    const verdicts = await Promise.all(
      Array.from({ length: 100 }, () => verifier.verifySingleUse(forged(), expectation)),
    );
    expect(verdicts.filter(({ ok }) => ok)).toHaveLength(1);
  });

  test.each([
    ['another ability', { capabilities: [{ ...call, can: 'mcp/list' }] }, 'wrong_capability'],
    ['another tool', { capabilities: [{ ...call, with: `${call.with}er` }] }, 'wrong_capability'],
    ['all abilities', { capabilities: [{ can: '*', with: call.with }] }, 'wrong_capability'],
    ['two capabilities', { capabilities: [call, call] }, 'wrong_capability'],
    ['caveats', { capabilities: [{ ...call, nb: { a: 1 } }] }, 'has_caveats'],
    ['another audience', { audience: bob.did }, 'wrong_audience'],
    ['no expiry', { expiration: null }, 'expiry_missing'],
    ['a far expiry', { expiration: NOW + 1000 }, 'expiry_too_far'],
    ['a past expiry', { expiration: NOW }, 'expired'],
  ])('with %s is refused before it is spent', async (_, payload, code) => {
    const store = createMemorySingleUseStore({ clock });
    const claim = vi.spyOn(store, 'claim');
    const { error } = await verifierOn(store).verifySingleUse(forged({ payload }), expectation);
    expect(error?.code).toBe(code);
    expect(claim).not.toHaveBeenCalled();
  });

  test('of another caller is refused', async () => {
    const verifier = verifierOn(createMemorySingleUseStore({ clock }));
    const { error } = await verifier.verifySingleUse(forged({ signer: bob }), expectation);
    expect(error?.code).toBe('wrong_issuer');
  });

  test('is taken before its signature is looked at, and given back when that fails', async () => {
    const store = createMemorySingleUseStore({ clock });
    const order: string[] = [];
    const didKey = createDidKeyResolver();
    let isUp = false;
    const verifier = verifierWith({
      singleUse: {
        claim: async (cid, expiresAt) => {
          order.push('claim');
          expect(expiresAt).toBe(NOW + 360);
          return store.claim(cid, expiresAt);
        },
        release: async (cid) => {
          order.push('release');
          return store.release(cid);
        },
      },
      resolver: {
        resolve: async (did) => {
          order.push('resolve');
          return isUp ? didKey.resolve(did) : { error: { code: 'did_unavailable', detail: '' } };
        },
      },
    });
    const refused = await verifier.verifySingleUse(forged(), expectation);
    expect(refused.error?.code).toBe('did_unavailable');
    expect(order).toEqual(['claim', 'resolve', 'release']);
    isUp = true;
    expect(await verifier.verifySingleUse(forged(), expectation)).toHaveProperty('ok');
  });

  test.each<[string, SingleUseStore | undefined]>([
    ['throws', { claim: async () => Promise.reject(new Error('down')), release: async () => {} }],
    ['is not there', undefined],
  ])('is refused when the store %s', async (_, store) => {
    const verifier = store ? verifierOn(store) : verifierWith();
    const { error } = await verifier.verifySingleUse(forged(), expectation);
    expect(error?.code).toBe('replay_store_unavailable');
  });

  test('stays refused when the store cannot give it back', async () => {
    const store = createMemorySingleUseStore({ clock });
    const release = async () => Promise.reject(new Error('down'));
    const verifier = verifierOn({ claim: store.claim, release });
    const unsigned = forged({ signature: (s) => s.map((byte, i) => (i > 40 ? 0 : byte)) });
    const { error } = await verifier.verifySingleUse(unsigned, expectation);
    expect(error?.code).toBe('signature_invalid');
  });

  test('that is not even a token is refused', async () => {
    const verifier = verifierOn(createMemorySingleUseStore({ clock }));
    expect((await verifier.verifySingleUse(7, expectation)).error?.code).toBe('token_not_string');
  });
});

describe('the memory of spent tokens', () => {
  test('refuses new ones while it is full and makes room as they expire', async () => {
    let now = NOW;
    const store = createMemorySingleUseStore({ maxBytes: 200, clock: () => now });
    expect(await store.claim('a', NOW + 10)).toBe(true);
    expect(await store.claim('b', NOW + 20)).toBe(true);
    expect(await store.claim('c', NOW + 20)).toBe(false);
    now = NOW + 10;
    expect(await store.claim('c', NOW + 20)).toBe(true);
    expect(await store.claim('b', NOW + 20)).toBe(false);
  });

  test('knows a token until it expires or is given back, and not longer', async () => {
    let now = NOW;
    const store = createMemorySingleUseStore({ clock: () => now });
    expect(store.has('a')).toBe(false);
    await store.claim('a', NOW + 10);
    now = NOW + 9;
    expect(store.has('a')).toBe(true);
    now = NOW + 10;
    expect(store.has('a')).toBe(false);
    expect(await store.claim('a', NOW + 20)).toBe(true);
    await store.release('a');
    expect(store.has('a')).toBe(false);
  });
});
