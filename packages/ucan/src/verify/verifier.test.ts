import { describe, expect, test, vi } from 'vitest';
import { countingResolver, ixoAlice } from '../../test/support/counting-resolver.js';
import { forgeToken, forgeUcan } from '../../test/support/forge.js';
import { linkFrom } from '../../test/support/hostile-chains.js';
import { alice, bob, NOW, oracle, verifierWith } from '../../test/support/verifier.js';

const token = forgeToken(forgeUcan());
const ixoToken = forgeToken(forgeUcan({ signer: ixoAlice, payload: { expiration: NOW + 900 } }));

describe('the verdict cache', () => {
  test('asks the resolver once for a hundred equal tokens at the same time', async () => {
    const resolver = countingResolver();
    const verifier = verifierWith({ resolver });
    const verdicts = await Promise.all(
      Array.from({ length: 100 }, () => verifier.verifyInvocation(ixoToken)),
    );
    expect(verdicts.every(({ ok }) => ok?.did === ixoAlice.did)).toBe(true);
    await verifier.verifyInvocation(ixoToken);
    expect(resolver.resolve).toHaveBeenCalledTimes(1);
  });

  test('keeps a looked-up verdict for 300 s and that of a did:key until it expires', async () => {
    const resolver = countingResolver();
    let now = NOW;
    const verifier = verifierWith({ resolver, clock: () => now });
    const lasting = forgeToken(forgeUcan({ payload: { expiration: NOW + 900 } }));
    const verifyBoth = () =>
      Promise.all([verifier.verifyInvocation(ixoToken), verifier.verifyInvocation(lasting)]);
    await verifyBoth();
    now = NOW + 299;
    await verifyBoth();
    expect(resolver.resolve).toHaveBeenCalledTimes(2);
    now = NOW + 300;
    await verifyBoth();
    expect(resolver.resolve).toHaveBeenCalledTimes(3);
    expect(resolver.resolve).toHaveBeenLastCalledWith(ixoAlice.did);
  });

  test('refuses what has expired since', async () => {
    let now = NOW;
    const verifier = verifierWith({ clock: () => now });
    expect(await verifier.verifyInvocation(token)).toHaveProperty('ok');
    now = NOW + 300;
    expect(await verifier.verifyInvocation(token)).toHaveProperty('error.code', 'expired');
  });

  test('refuses what has expired while the keys were looked up', async () => {
    let now = NOW;
    const resolver = countingResolver(async () => {
      now = NOW + 900;
      return { ok: [alice.publicKey] };
    });
    const verdict = await verifierWith({ resolver, clock: () => now }).verifyInvocation(ixoToken);
    expect(verdict.error).toMatchObject({ code: 'expired', issuer: ixoAlice.did });
  });

  test('remembers no failure', async () => {
    let isUp = false;
    const resolver = countingResolver(async () =>
      isUp ? { ok: [alice.publicKey] } : { error: { code: 'did_unavailable', detail: 'down' } },
    );
    const verifier = verifierWith({ resolver });
    const refused = await verifier.verifyInvocation(ixoToken);
    expect(refused.error).toMatchObject({ code: 'did_unavailable', issuer: ixoAlice.did });
    isUp = true;
    expect(await verifier.verifyInvocation(ixoToken)).toHaveProperty('ok.did', ixoAlice.did);
  });

  test('keeps purposes apart', async () => {
    const verifier = verifierWith();
    const delegation = forgeToken(linkFrom(alice, oracle, []));
    expect(await verifier.verifyDelegation(delegation)).toHaveProperty('ok.token', delegation);
    expect(await verifier.verifyInvocation(delegation)).toHaveProperty(
      'error.code',
      'wrong_capability',
    );
  });

  test('is bounded', async () => {
    const resolver = countingResolver();
    // Room for two verdicts; signatures are verified again where the issuer has to be looked up.
    const verifier = verifierWith({ resolver, cacheBytes: 2500 });
    const tokens = ['1', '2', '3'].map((nonce) =>
      forgeToken(forgeUcan({ signer: ixoAlice, payload: { nonce } })),
    );
    for (const each of tokens) await verifier.verifyInvocation(each);
    await verifier.verifyInvocation(tokens[2]);
    expect(resolver.resolve).toHaveBeenCalledTimes(3);
    await verifier.verifyInvocation(tokens[0]);
    expect(resolver.resolve).toHaveBeenCalledTimes(4);
  });

  test('forgets on demand, also what is still being verified', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const resolver = countingResolver(async () => {
      await promise;
      return { ok: [alice.publicKey] };
    });
    const verifier = verifierWith({ resolver });
    const running = verifier.verifyInvocation(ixoToken);
    await expect.poll(() => resolver.resolve).toHaveBeenCalled();
    expect(verifier.forget(({ did }) => did === ixoAlice.did)).toBe(0);
    resolve();
    expect(await running).toHaveProperty('ok');
    await verifier.verifyInvocation(ixoToken);
    expect(resolver.resolve).toHaveBeenCalledTimes(2);
    expect(verifier.forget(({ did }) => did === ixoAlice.did)).toBe(1);
    expect(verifier.forget(() => true)).toBe(0);
  });
});

describe('looking up an issuer', () => {
  test('takes whichever of its keys signed', async () => {
    const verdict = await verifierWith({ resolver: countingResolver() }).verifyInvocation(ixoToken);
    expect(verdict.ok?.did).toBe(ixoAlice.did);
  });

  test.each(['did_not_found', 'did_unsupported', 'did_deactivated', 'did_unavailable'] as const)(
    'hands on %s',
    async (code) => {
      const resolver = countingResolver(async () => ({ error: { code, detail: 'x' } }));
      const verdict = await verifierWith({ resolver }).verifyInvocation(ixoToken);
      expect(verdict.error?.code).toBe(code);
    },
  );

  test.each([
    ['no key', []],
    ['a small-order key', [Uint8Array.from([1, ...new Array(31).fill(0)])]],
    ['a short key', [alice.publicKey.subarray(1)]],
  ])('refuses %s', async (_, keys) => {
    const resolver = countingResolver(async () => ({ ok: keys }));
    const verdict = await verifierWith({ resolver }).verifyInvocation(ixoToken);
    expect(verdict.error?.code).toBe('weak_key');
  });

  test('a resolver that throws is unavailable', async () => {
    const resolver = countingResolver(async () => Promise.reject(new Error('bug')));
    const verdict = await verifierWith({ resolver }).verifyInvocation(ixoToken);
    expect(verdict.error?.code).toBe('did_unavailable');
  });

  test('happens only after every local check', async () => {
    const resolver = countingResolver();
    const verifier = verifierWith({ resolver });
    const late = forgeUcan({ signer: ixoAlice, payload: { expiration: NOW } });
    await verifier.verifyInvocation(forgeToken(late));
    await verifier.verifyDelegation(forgeToken(linkFrom(ixoAlice, bob, [])));
    expect(resolver.resolve).not.toHaveBeenCalled();
  });
});

test('no key is looked up for a chain with a bad signature that needs no lookup', async () => {
  const resolver = countingResolver();
  const proof = linkFrom(ixoAlice, bob, []);
  const top = linkFrom(bob, oracle, [proof], {
    signature: (s) => s.map((b, i) => (i > 60 ? 0 : b)),
  });
  const { error } = await verifierWith({ resolver }).verifyDelegation(forgeToken(proof, top));
  expect(error?.code).toBe('signature_invalid');
  expect(resolver.resolve).not.toHaveBeenCalledWith(ixoAlice.did);
});

describe('audience and lifetime', () => {
  test('an extra audience counts only when configured', async () => {
    const forBob = forgeToken(forgeUcan({ payload: { audience: bob.did } }));
    expect(await verifierWith().verifyInvocation(forBob)).toHaveProperty(
      'error.code',
      'wrong_audience',
    );
    const verifier = verifierWith({ extraAudiences: [bob.did] });
    expect(await verifier.verifyInvocation(forBob)).toHaveProperty('ok.audience', bob.did);
  });

  test('the longest life is configurable', async () => {
    const verifier = verifierWith({ maxTtlSeconds: 60 });
    expect(await verifier.verifyInvocation(token)).toHaveProperty('error.code', 'expiry_too_far');
  });

  test('a delegation may live long', async () => {
    const long = linkFrom(alice, oracle, [], { payload: { expiration: NOW + 1e7 } });
    const verdict = await verifierWith().verifyDelegation(forgeToken(long));
    expect(verdict.ok).toMatchObject({ did: alice.did, expiration: NOW + 1e7 });
  });

  test('a delegation through did:ixo is proven with the keys of each', async () => {
    const proof = linkFrom(ixoAlice, bob, []);
    const chain = forgeToken(proof, linkFrom(bob, oracle, [proof]));
    const verdict = await verifierWith({ resolver: countingResolver() }).verifyDelegation(chain);
    expect(verdict.error).toBeUndefined();
    expect(verdict.ok?.issuers).toEqual([ixoAlice.did, bob.did]);
  });
});

describe('verifyGrant', () => {
  const can = 'oracle/run';
  const sign = (payload: object = {}) =>
    forgeToken(forgeUcan({ payload: { capabilities: [{ can, with: 'ixo:x' }], ...payload } }));

  test('accepts one capability of the ability, also without an expiry', async () => {
    const verdict = await verifierWith().verifyGrant(sign({ expiration: null }), { can });
    expect(verdict.ok).toMatchObject({ did: alice.did, capabilities: [{ can, with: 'ixo:x' }] });
  });

  test.each([
    [
      'another ability',
      { capabilities: [{ can: 'oracle/rules', with: 'ixo:x' }] },
      'wrong_capability',
    ],
    ['a wildcard', { capabilities: [{ can: 'oracle/*', with: 'ixo:x' }] }, 'wrong_capability'],
    ['no capability', { capabilities: [] }, 'wrong_capability'],
    [
      'two capabilities',
      { capabilities: [1, 2].map((n) => ({ can, with: `ixo:${n}` })) },
      'wrong_capability',
    ],
    ['an expired one', { expiration: NOW }, 'expired'],
    ['one for later', { notBefore: NOW + 60 }, 'not_yet_valid'],
    ['another audience', { audience: bob.did }, 'wrong_audience'],
    ['a time after the year 9999', { expiration: 253_402_300_800 }, 'expiry_too_far'],
  ])('refuses %s', async (_, payload, code) => {
    const verdict = await verifierWith().verifyGrant(sign(payload), { can });
    expect(verdict.error?.code).toBe(code);
  });

  test('refuses a grant with proofs', async () => {
    const proof = linkFrom(alice, bob, []);
    const grant = forgeToken(proof, linkFrom(bob, oracle, [proof]));
    const { error } = await verifierWith().verifyGrant(grant, { can: 'store/*' });
    expect(error).toMatchObject({ code: 'has_proofs', issuer: bob.did });
  });

  test('refuses a grant from the moment that it is spent', async () => {
    const spent = new Set<string>();
    const verifier = verifierWith({ spentTokens: spent });
    const { ok } = await verifier.verifyGrant(sign(), { can });
    spent.add(ok?.cid ?? '');
    expect((await verifier.verifyGrant(sign(), { can })).error?.code).toBe('single_use');
  });

  test('refuses a cached grant for another ability', async () => {
    const verifier = verifierWith();
    const grant = sign();
    expect(await verifier.verifyGrant(grant, { can })).toHaveProperty('ok');
    const other = await verifier.verifyGrant(grant, { can: 'oracle/rules' });
    expect(other.error?.code).toBe('wrong_capability');
  });

  test('refuses a grant that was revoked since', async () => {
    const revoked = new Set<string>();
    const isRevoked = (cid: string) => revoked.has(cid);
    const verifier = verifierWith({ revocations: { isRevoked } });
    const { ok } = await verifier.verifyGrant(sign(), { can });
    revoked.add(ok?.cid ?? '');
    expect((await verifier.verifyGrant(sign(), { can })).error?.code).toBe('revoked');
  });
});

describe('verifyAccessKey', () => {
  const capability = { can: 'oracle/chat', with: 'ixo:oracle' };
  const expectation = { capability, maxTtlSeconds: 1000 };
  const sign = (payload: object = {}) =>
    forgeToken(forgeUcan({ payload: { capabilities: [capability], ...payload } }));
  const verify = (token: string) => verifierWith().verifyAccessKey(token, expectation);

  test('accepts one capability, with caveats for the caller to interpret', async () => {
    const capabilities = [{ ...capability, nb: { turnsPerDay: 5 } }];
    const token = sign({ capabilities, expiration: NOW + 1030 });
    expect(await verify(token)).toMatchObject({ ok: { did: alice.did, capabilities, token } });
  });

  test.each([
    ['another ability', { capabilities: [{ ...capability, can: '*' }] }, 'wrong_capability'],
    ['another resource', { capabilities: [{ ...capability, with: 'ixo:*' }] }, 'wrong_capability'],
    ['two capabilities', { capabilities: [capability, capability] }, 'wrong_capability'],
    ['no capability', { capabilities: [] }, 'wrong_capability'],
    ['another audience', { audience: bob.did }, 'wrong_audience'],
    ['no expiry', { expiration: null }, 'expiry_missing'],
    ['a far expiry', { expiration: NOW + 1031 }, 'expiry_too_far'],
    ['a past expiry', { expiration: NOW }, 'expired'],
    ['a later start', { notBefore: NOW + 31 }, 'not_yet_valid'],
  ])('refuses %s', async (_, payload, code) => {
    expect((await verify(sign(payload))).error).toMatchObject({ code, issuer: alice.did });
  });

  test('refuses a cached key for another ability or resource', async () => {
    const verifier = verifierWith();
    expect(await verifier.verifyAccessKey(sign(), expectation)).toHaveProperty('ok');
    for (const other of [{ can: 'oracle/run' }, { with: 'ixo:other' }]) {
      const wanted = { ...expectation, capability: { ...capability, ...other } };
      const { error } = await verifier.verifyAccessKey(sign(), wanted);
      expect(error?.code).toBe('wrong_capability');
    }
    expect(await verifier.verifyAccessKey(sign(), expectation)).toHaveProperty('ok');
  });
});

describe('verifyIssuer', () => {
  const verify = (text: string, options: Parameters<typeof verifierWith>[0] = {}) =>
    verifierWith(options).verifyIssuer(text, { issuer: alice.did });

  test.each([
    ['expired', { expiration: NOW - 1 }],
    ['not valid yet, and valid forever', { notBefore: NOW + 900, expiration: null }],
    ['for another audience', { audience: bob.did }],
  ])('accepts what the issuer signed, although it is %s', async (_, payload) => {
    const ucan = forgeUcan({ payload });
    const { ok } = await verify(forgeToken(ucan), { revocations: { isRevoked: () => true } });
    expect(ok?.cid).toBe(ucan.link.toString());
  });

  test('refuses what another key signed, another issuer, and what the caller cannot pay for', async () => {
    const forged = forgeToken(forgeUcan({ signer: bob, payload: { issuer: alice.did } }));
    expect((await verify(forged)).error?.code).toBe('signature_invalid');
    expect((await verify(forgeToken(forgeUcan({ signer: bob })))).error?.code).toBe('wrong_issuer');
    const expectation = { issuer: alice.did, charge: () => undefined };
    const unpaid = await verifierWith().verifyIssuer(token, expectation);
    expect(unpaid.error?.code).toBe('cost_refused');
  });
});

describe('verifyStatement', () => {
  const capability = { can: 'oracle/rules', with: 'ixo:oracle' };
  const expectation = { ...capability, issuer: alice.did };
  const nb = { rule: 'always' };
  const capabilities = [{ ...capability, nb }];
  const sign = (payload: object = {}, signer = alice) =>
    forgeToken(forgeUcan({ signer, payload: { capabilities, ...payload } }));

  test('returns the caveats and the key that signed', async () => {
    const { ok } = await verifierWith().verifyStatement(sign(), expectation);
    expect(ok).toMatchObject({ did: alice.did, nb, key: alice.publicKey });
    const plain = sign({ capabilities: [capability] });
    expect(await verifierWith().verifyStatement(plain, expectation)).toHaveProperty('ok.nb', {});
  });

  test.each([
    ['never expires', { expiration: null }, 'expiry_missing'],
    ['lives long', { expiration: NOW + 931 }, 'expiry_too_far'],
  ])('one that %s is accepted unless it must be short-lived', async (_, payload, code) => {
    const verifier = verifierWith();
    expect(await verifier.verifyStatement(sign(payload), expectation)).toHaveProperty('ok');
    const short = { ...expectation, isShortLived: true };
    expect((await verifier.verifyStatement(sign(payload), short)).error?.code).toBe(code);
    expect(await verifier.verifyStatement(sign(), short)).toHaveProperty('ok');
  });

  test.each([
    ['another ability', { capabilities: [{ ...capability, can: '*' }] }, 'wrong_capability'],
    ['another resource', { capabilities: [{ ...capability, with: 'ixo:x' }] }, 'wrong_capability'],
    ['another audience', { audience: bob.did }, 'wrong_audience'],
    ['a past expiry', { expiration: NOW }, 'expired'],
  ])('refuses %s', async (_, payload, code) => {
    const { error } = await verifierWith().verifyStatement(sign(payload), expectation);
    expect(error).toMatchObject({ code, issuer: alice.did });
  });

  test('refuses another issuer, a bad signature, a revoked one and rubbish', async () => {
    const verify = async (token: unknown, isRevoked = false) =>
      verifierWith({ revocations: { isRevoked: () => isRevoked } }).verifyStatement(
        token,
        expectation,
      );
    const unsigned = forgeUcan({
      payload: { capabilities: [capability] },
      signature: (s) => s.map((byte, i) => (i > 60 ? 0 : byte)),
    });
    expect((await verify(sign({}, bob))).error?.code).toBe('wrong_issuer');
    expect((await verify(forgeToken(unsigned))).error?.code).toBe('signature_invalid');
    expect((await verify(sign(), true)).error?.code).toBe('revoked');
    expect((await verify('rubbish')).error?.code).toBe('base64_invalid');
  });

  test('refuses an issuer whose key is withdrawn while it is verified', async () => {
    let lookups = 0;
    const resolver = countingResolver(async () => {
      lookups += 1;
      if (lookups === 1) return { ok: [alice.publicKey] };
      return { error: { code: 'did_deactivated', detail: 'withdrawn' } };
    });
    const statement = sign({}, ixoAlice);
    const wanted = { ...expectation, issuer: ixoAlice.did };
    const { error } = await verifierWith({ resolver }).verifyStatement(statement, wanted);
    expect(error).toMatchObject({ code: 'did_deactivated', issuer: ixoAlice.did });
  });
});

test('onRejection receives every refusal with its purpose, and no success', async () => {
  const onRejection = vi.fn();
  const verifier = verifierWith({ onRejection });
  const capability = { can: 'a/b', with: 'ixo:x' };
  const expectation = { ...capability, issuer: alice.did };
  await verifier.verifyInvocation(token);
  await verifier.verifyInvocation('');
  await verifier.verifyDelegation('');
  await verifier.verifyGrant('', { can: 'a/b' });
  await verifier.verifySingleUse('', expectation);
  await verifier.verifyStatement('', expectation);
  await verifier.verifyAccessKey('', { capability, maxTtlSeconds: 1 });
  const purposes = onRejection.mock.calls.map(([purpose]) => purpose);
  expect(purposes.join(' ')).toBe('invocation delegation grant single_use statement access_key');
  expect(onRejection.mock.calls.every(([, error]) => error.code)).toBe(true);
});

test('forget drops the verdicts of every purpose', async () => {
  const verifier = verifierWith();
  const sign = (can: string) =>
    forgeToken(forgeUcan({ payload: { capabilities: [{ can, with: 'ixo:x' }] } }));
  await verifier.verifyInvocation(token);
  await verifier.verifyDelegation(sign('a/b'));
  await verifier.verifyGrant(sign('oracle/run'), { can: 'oracle/run' });
  const capability = { can: 'oracle/chat', with: 'ixo:x' };
  await verifier.verifyAccessKey(sign('oracle/chat'), { capability, maxTtlSeconds: 900 });
  expect(verifier.forget(({ did }) => did === bob.did)).toBe(0);
  expect(verifier.forget(({ did }) => did === alice.did)).toBe(4);
});
