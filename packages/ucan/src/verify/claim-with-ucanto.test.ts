import * as validator from '@ucanto/validator';
import { describe, expect, test, vi } from 'vitest';
import type { UcanPayload } from '../codec/ucan-block.js';
import { readToken } from '../gate/read-token.js';
import type { Token } from '../gate/token.js';
import { forgeToken, forgeUcan } from '../test-support/forge.js';
import { diamond, linkFrom } from '../test-support/hostile-chains.js';
import {
  alice,
  bob,
  NOW,
  okOf,
  oracle,
  signerNamed,
  verifierWith,
} from '../test-support/verifier.js';
import { claimWithUcanto } from './claim-with-ucanto.js';

vi.mock('@ucanto/validator', async (original) => {
  const actual = await original<typeof validator>();
  return { ...actual, claim: vi.fn(actual.claim) };
});

const carol = signerNamed('carol');
const CLAIMS = ['1', '2'].map((n) => ({ can: 'store/add', with: `ixo:files/${n}` }));

/** alice → bob → oracle, not checked by anything but the gate. */
function chain(first: Partial<UcanPayload>, second: Partial<UcanPayload> = {}): Token {
  const proof = linkFrom(alice, bob, [], { payload: first });
  const top = linkFrom(bob, oracle, [proof], { payload: { capabilities: CLAIMS, ...second } });
  return okOf(readToken(forgeToken(proof, top)));
}

const keysOf = (token: Token) =>
  new Map([...token.ucans.values()].map(({ cid, issuer }) => [cid, keyOf(issuer)]));
const keyOf = (issuer: string) =>
  [alice, bob, carol].find(({ did }) => did === issuer)?.publicKey ?? alice.publicKey;

const judge = (token: Token) => claimWithUcanto(token, keysOf(token));

describe('ucanto', () => {
  test('is asked about every capability of a chain, and never about a bearer', async () => {
    const claim = vi.mocked(validator.claim);
    const verifier = verifierWith();
    await verifier.verifyInvocation(forgeToken(forgeUcan()));
    await verifier.verifyDelegation(forgeToken(linkFrom(alice, oracle, [])));
    expect(claim).not.toHaveBeenCalled();
    expect(await verifier.verifyDelegation(chain({}).text)).toHaveProperty('ok');
    expect(claim).toHaveBeenCalledTimes(CLAIMS.length);
  });

  test('may overrule us', async () => {
    vi.mocked(validator.claim).mockRejectedValueOnce(new Error('no'));
    const { error } = await verifierWith().verifyDelegation(chain({}).text);
    expect(error).toMatchObject({ code: 'claim_refused', issuer: bob.did });
  });

  test.each([
    ['a plain chain', chain({})],
    ['a chain in the future, since the time was checked before', chain({ notBefore: NOW + 20 })],
    ['a diamond', okOf(readToken(forgeToken(...diamond(3))))],
  ])('agrees to %s', async (_, token) => {
    expect(await judge(token)).toBeUndefined();
  });

  test.each<[string, Token]>([
    ['another ability', chain({ capabilities: [{ can: 'mail/*', with: 'ixo:files/*' }] })],
    ['another resource', chain({ capabilities: [{ can: 'store/*', with: 'ixo:mail/*' }] })],
    ['one of two capabilities', chain({ capabilities: CLAIMS.slice(1) })],
    ['a dropped caveat', chain({ capabilities: [{ can: '*', with: 'ixo:*', nb: { a: 1 } }] })],
    ['a proof for another', chain({ audience: carol.did })],
    ['an attestation instead of a signature', attested()],
  ])('refuses %s, had we overlooked it', async (_, token) => {
    expect(await judge(token)).toMatchObject({ code: 'claim_refused' });
  });

  /** A did:ixo issuer whose delegation somebody else vouches for. */
  function attested(): Token {
    const ixo = okOf(alice.withDid('did:ixo:alice'));
    const grant = linkFrom(ixo, bob, []);
    const attest = { can: 'ucan/attest', with: oracle.did, nb: { proof: grant.link } };
    const attestation = linkFrom(carol, bob, [], { payload: { capabilities: [attest] } });
    const token = forgeToken(grant, attestation, linkFrom(bob, oracle, [grant, attestation]));
    const read = okOf(readToken(token));
    const ucans = new Map(read.ucans);
    const victim = okOf({ ok: [...ucans.values()].find(({ issuer }) => issuer === ixo.did) });
    if (victim) ucans.set(victim.cid, { ...victim, signature: new Uint8Array(64) });
    return { ...read, ucans };
  }
});
