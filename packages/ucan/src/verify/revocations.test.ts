import { describe, expect, test } from 'vitest';
import { countingResolver, ixoAlice } from '../../test/support/counting-resolver.js';
import { forgeToken, forgeUcan } from '../../test/support/forge.js';
import { linkFrom } from '../../test/support/hostile-chains.js';
import { alice, bob, NOW, oracle, verifierWith } from '../../test/support/verifier.js';
import { createRevocationSet } from './revocations.js';

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
