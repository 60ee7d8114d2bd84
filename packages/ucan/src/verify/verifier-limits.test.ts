import { describe, expect, test, vi } from 'vitest';
import { countingResolver, ixoAlice } from '../../test/support/counting-resolver.js';
import { forgeToken, forgeUcan } from '../../test/support/forge.js';
import { linkFrom } from '../../test/support/hostile-chains.js';
import { alice, bob, NOW, oracle, verifierWith } from '../../test/support/verifier.js';
import { type IpldMap, Link } from '../codec/ipld.js';
import { measureVerdict } from './verifier.js';

const token = forgeToken(forgeUcan());
const ixoToken = forgeToken(forgeUcan({ signer: ixoAlice }));

describe('verifyDelegation', () => {
  const buildDelegation = (can: string) =>
    forgeToken(
      linkFrom(alice, oracle, [], { payload: { capabilities: [{ can, with: 'ixo:x' }] } }),
    );

  test.each(['mcp/call', 'mcp/*', 'oracle/ask', 'oracle/*', 'oracle/a/b'])(
    'refuses %s, which is an invocation',
    async (can) => {
      const { error } = await verifierWith().verifyDelegation(buildDelegation(can));
      expect(error).toMatchObject({ code: 'wrong_purpose', issuer: alice.did });
    },
  );

  test('refuses an invocation that hides among other capabilities', async () => {
    const capabilities = ['store/add', 'mcp/call'].map((can) => ({ can, with: 'ixo:x' }));
    const token = forgeToken(linkFrom(alice, oracle, [], { payload: { capabilities } }));
    expect((await verifierWith().verifyDelegation(token)).error?.code).toBe('wrong_purpose');
  });

  test.each(['*', 'store/*', 'oracles/ask', 'mcps/call'])('accepts %s', async (can) => {
    expect(await verifierWith().verifyDelegation(buildDelegation(can))).toHaveProperty('ok');
  });

  test('refuses a token from the moment that any of its UCANs is spent, cached or not', async () => {
    const spent = new Set<string>();
    const verifier = verifierWith({ spentTokens: spent });
    const proof = linkFrom(alice, bob, []);
    const chain = forgeToken(proof, linkFrom(bob, oracle, [proof]));
    expect(await verifier.verifyDelegation(chain)).toHaveProperty('ok');
    spent.add(`${proof.link}`);
    for (const each of [verifier, verifierWith({ spentTokens: spent })]) {
      const { error } = await each.verifyDelegation(chain);
      expect(error).toMatchObject({ code: 'single_use', issuer: bob.did });
    }
  });

  test('refuses everything while spentTokens is unavailable', async () => {
    const spentTokens = { has: () => Promise.reject(new Error('away')) };
    const { error } = await verifierWith({ spentTokens }).verifyDelegation(buildDelegation('a/b'));
    expect(error?.code).toBe('replay_store_unavailable');
  });
});

describe('charge', () => {
  const proof = linkFrom(alice, bob, []);
  const buildChain = (nonce: string) =>
    forgeToken(proof, linkFrom(bob, oracle, [proof], { payload: { nonce } }));

  test('hears what a token will cost, once, and how that ended', async () => {
    const settle = vi.fn();
    const charge = vi.fn(() => settle);
    const verifier = verifierWith({ resolver: countingResolver() });
    await verifier.verifyInvocation(ixoToken, { charge });
    await verifier.verifyInvocation(ixoToken, { charge });
    const characters = ixoToken.length;
    expect(charge.mock.calls).toEqual([[{ signatures: 1, lookups: 1, characters }]]);
    expect(settle.mock.calls).toEqual([[true]]);
  });

  test('charge does not count signatures that are already verified', async () => {
    const charge = vi.fn(() => () => undefined);
    const verifier = verifierWith();
    await verifier.verifyDelegation(buildChain('1'), { charge });
    await verifier.verifyDelegation(buildChain('2'), { charge });
    expect(charge.mock.calls).toMatchObject([[{ signatures: 2 }], [{ signatures: 1 }]]);
  });

  test('is not asked about what fails a local check', async () => {
    const charge = vi.fn(() => () => undefined);
    const late = forgeToken(forgeUcan({ payload: { expiration: NOW } }));
    for (const bad of ['AAAA', late])
      expect(await verifierWith().verifyInvocation(bad, { charge })).toHaveProperty('error');
    expect(charge).not.toHaveBeenCalled();
  });

  test('refuses before anything is looked up, unless the verdict is known', async () => {
    const resolver = countingResolver();
    const isRevoked = vi.fn(() => false);
    const verifier = verifierWith({ resolver, revocations: { isRevoked } });
    const refusing = { charge: () => undefined };
    const refused = await verifier.verifyInvocation(ixoToken, refusing);
    expect(refused.error).toMatchObject({ code: 'cost_refused', issuer: ixoAlice.did });
    expect(resolver.resolve).not.toHaveBeenCalled();
    expect(isRevoked).not.toHaveBeenCalled();
    expect(await verifier.verifyInvocation(ixoToken)).toHaveProperty('ok');
    expect(await verifier.verifyInvocation(ixoToken, refusing)).toHaveProperty('ok');
  });

  test('isAffordable refuses a token before it is decoded, unless the verdict is known', async () => {
    const verifier = verifierWith();
    const isAffordable = vi.fn(() => false);
    const { error } = await verifier.verifyInvocation('not a token', { isAffordable });
    expect(error?.code).toBe('cost_refused');
    expect(isAffordable.mock.calls).toEqual([[{ signatures: 0, lookups: 0, characters: 11 }]]);
    expect(await verifier.verifyInvocation(token)).toHaveProperty('ok');
    expect(await verifier.verifyInvocation(token, { isAffordable })).toHaveProperty('ok');
  });

  test.each([
    ['a bad signature', { revoked: false, code: 'signature_invalid' }],
    ['a revocation', { revoked: true, code: 'revoked' }],
  ])('settle receives %s', async (_, { revoked, code }) => {
    const settle = vi.fn();
    const bad = forgeToken(forgeUcan({ signature: (s) => s.map((b, i) => (i > 60 ? 0 : b)) }));
    const verifier = verifierWith({ revocations: { isRevoked: () => revoked } });
    const { error } = await verifier.verifyInvocation(bad, { charge: () => settle });
    expect(error?.code).toBe(code);
    expect(settle.mock.calls).toEqual([[false]]);
  });

  test('a caller who can pay is not refused for one who could not', async () => {
    const verifier = verifierWith();
    const [poor, rich] = await Promise.all([
      verifier.verifyInvocation(token, { charge: () => undefined }),
      verifier.verifyInvocation(token, { charge: () => () => undefined }),
    ]);
    expect([poor.error?.code, rich.ok?.did]).toEqual(['cost_refused', alice.did]);
  });
});

describe('what a verifier keeps', () => {
  /** Of 13 values each. */
  const facts = (count: number) =>
    Array.from({ length: count }, () => ({
      a: Array.from({ length: 11 }, () => new Uint8Array()),
    }));

  test('is nothing of a token with more than 256 values', async () => {
    const { error } = await verifierWith().verifyInvocation(
      forgeToken(forgeUcan({ payload: { facts: facts(20) } })),
    );
    expect(error?.code).toBe('too_many_values');
  });

  test('are no facts', async () => {
    const { ok } = await verifierWith().verifyInvocation(
      forgeToken(forgeUcan({ payload: { facts: facts(18) } })),
    );
    expect(Object.keys(ok ?? {}).sort()).toEqual(
      ['audience', 'cid', 'cids', 'did', 'expiration', 'issuers'].sort(),
    );
  });

  test('is measured by the bytes of its caveats', () => {
    const bare = {
      did: '',
      cid: '',
      audience: '',
      issuers: [],
      cids: [],
      expiration: 0,
      token: '',
    };
    const measure = (nb: IpldMap) =>
      measureVerdict({ ...bare, capabilities: [{ can: 'a/b', with: 'ixo:x', nb }] });
    const empty = measure({});
    expect(measure({ a: 'x'.repeat(5000) }) - empty).toBeGreaterThan(5000);
    expect(measure({ a: facts(18) }) - empty).toBeGreaterThan(18 * 11 * 100);
    expect(measure({ a: new Link(new Uint8Array(36)) }) - empty).toBeGreaterThan(200);
    expect(measure({ a: new Link(new Uint8Array(5000)) }) - empty).toBeGreaterThan(5000);
    expect(measure({ a: new Uint8Array(5000) }) - empty).toBeGreaterThan(5000);
  });
});

test('verifications in progress are limited', async () => {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const verifier = verifierWith({ revocations: { isRevoked: () => promise } });
  const tokens = Array.from({ length: 2001 }, (_, n) =>
    forgeToken(forgeUcan({ payload: { nonce: `${n}` } })),
  );
  const started = tokens.map((each) => verifier.verifyInvocation(each));
  expect((await started.at(-1))?.error?.code).toBe('verifier_busy');
  resolve(false);
  const verdicts = await Promise.all(started);
  expect(verdicts.filter(({ ok }) => ok)).toHaveLength(2000);
});

describe('a resource', () => {
  const verify = (resource: string) => {
    const payload = { capabilities: [{ can: 'store/add', with: resource }] };
    return verifierWith().verifyDelegation(forgeToken(linkFrom(alice, oracle, [], { payload })));
  };
  const letters = (count: number) =>
    String.fromCodePoint(...Array.from({ length: count }, (_, i) => 0x4e00 + i));

  test.each([
    `https://${letters(50)}.example/${letters(400)}`,
    `https://example.com/${'a'.repeat(2000)}`,
    `ixo:${'a'.repeat(2000)}`,
  ])('may be long, or of other letters than ASCII', async (resource) => {
    expect(await verify(resource)).toHaveProperty('ok.did', alice.did);
  });

  test('may not be long and of other letters than ASCII, which takes long to parse', async () => {
    const { error } = await verify(`https://${letters(510)}`);
    expect(error).toMatchObject({ code: 'ucan_malformed', detail: 'a capability' });
  });
});
