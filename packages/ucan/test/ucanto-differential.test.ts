import { describe, expect, test } from 'vitest';
import type { Token, Ucan, UcanPayload } from '../src/codec/ucan.js';
import { createDidKeyResolver } from '../src/did/did-key.js';
import type { Signer } from '../src/keys/signer.js';
import { readToken } from '../src/read/read-token.js';
import { claimWithUcanto } from './support/claim-with-ucanto.js';
import { type ForgedBlock, forgeToken } from './support/forge.js';
import { diamond, linkFrom } from './support/hostile-chains.js';
import { seededRandom } from './support/ucanto-cases.js';
import { alice, bob, NOW, oracle, signerNamed, unwrap, verifierWith } from './support/verifier.js';

const carol = signerNamed('carol');
const people = [alice, bob, carol];
const CLAIMS = ['1', '2'].map((n) => ({ can: 'store/add', with: `ixo:files/${n}` }));

const readPublicKey = (issuer: string) =>
  people.find(({ did }) => did === issuer)?.publicKey ?? alice.publicKey;
const askUcanto = (token: Token) =>
  claimWithUcanto(
    token,
    new Map([...token.ucans.values()].map(({ cid, issuer }) => [cid, readPublicKey(issuer)])),
  );

/** alice → bob → oracle, not checked by anything but the gate. */
function chain(first: Partial<UcanPayload>, second: Partial<UcanPayload> = {}): Token {
  const proof = linkFrom(alice, bob, [], { payload: first });
  const top = linkFrom(bob, oracle, [proof], { payload: { capabilities: CLAIMS, ...second } });
  return unwrap(readToken(forgeToken(proof, top)));
}

const didKeys = createDidKeyResolver();
/** A DID of another method has the key of alice. */
const resolver = {
  resolve: async (did: string) =>
    did.startsWith('did:key:') ? didKeys.resolve(did) : { ok: [alice.publicKey] },
};

describe('verifyDelegation and ucanto both', () => {
  test.each([
    ['a plain chain', chain({})],
    ['a chain with a start', chain({ notBefore: NOW - 20 }, { notBefore: NOW - 20 })],
    ['a diamond', unwrap(readToken(forgeToken(...diamond(3))))],
  ])('accept %s', async (_, token) => {
    expect(await verifierWith().verifyDelegation(token.text)).toHaveProperty('ok');
    expect(await askUcanto(token)).toBeUndefined();
  });

  test.each<[string, Token, string]>([
    [
      'another ability',
      chain({ capabilities: [{ can: 'mail/*', with: 'ixo:files/*' }] }),
      'escalation',
    ],
    [
      'another resource',
      chain({ capabilities: [{ can: 'store/*', with: 'ixo:mail/*' }] }),
      'escalation',
    ],
    ['one of two capabilities', chain({ capabilities: CLAIMS.slice(1) }), 'escalation'],
    [
      'a dropped caveat',
      chain({ capabilities: [{ can: '*', with: 'ixo:*', nb: { a: 1 } }] }),
      'escalation',
    ],
    ['a proof for another', chain({ audience: carol.did }), 'chain_broken'],
    ['an attestation instead of a signature', attested(), 'signature_invalid'],
  ])('refuse %s', async (_, token, code) => {
    const { error } = await verifierWith({ resolver }).verifyDelegation(token.text);
    expect(error?.code).toBe(code);
    expect(await askUcanto(token)).toBeDefined();
  });

  /** A did:ixo issuer whose delegation carol vouches for; its own signature is missing. */
  function attested(): Token {
    const ixo = unwrap(alice.withDid('did:ixo:alice'));
    const grant = linkFrom(ixo, bob, [], { signature: (s) => s.map((b, i) => (i < 4 ? b : 0)) });
    const attest = { can: 'ucan/attest', with: oracle.did, nb: { proof: grant.link } };
    const attestation = linkFrom(carol, bob, [], { payload: { capabilities: [attest] } });
    const top = linkFrom(bob, oracle, [grant, attestation]);
    return unwrap(readToken(forgeToken(grant, attestation, top)));
  }
});

describe('verifyDelegation and ucanto judge random chains alike', () => {
  const CHAINS = 200;

  test(`${CHAINS} chains`, { timeout: 120_000 }, async () => {
    const seen = new Map<string, number>();
    for (let seed = 0; seed < CHAINS; seed += 1) {
      const outcome = await compareVerdicts(seed);
      seen.set(outcome, (seen.get(outcome) ?? 0) + 1);
    }
    expect(seen.get('accepted')).toBeGreaterThan(CHAINS / 10);
    expect(seen.get('refused')).toBeGreaterThan(CHAINS / 10);
  });

  async function compareVerdicts(seed: number): Promise<'accepted' | 'refused'> {
    const { token, hasUnrelatedProof } = randomChain(seededRandom(seed));
    const { error } = await verifierWith().verifyDelegation(token.text);
    const refusal = await askAboutEveryUcan(token);
    if (!error) expect(refusal, `chain ${seed}, which we accept`).toBeUndefined();
    // A proof for another audience is an error here; ucanto passes over it.
    else if (!hasUnrelatedProof) expect(refusal, `chain ${seed}: ${error.code}`).toBeDefined();
    return error ? 'refused' : 'accepted';
  }

  /** We judge every UCAN of a chain, ucanto only those that a capability of the root needs. */
  async function askAboutEveryUcan(token: Token): Promise<string | undefined> {
    for (const root of token.ucans.values()) {
      const refusal = await askUcanto({ ...token, root });
      if (refusal !== undefined) return refusal;
    }
    return undefined;
  }

  const abilities = ['*', 'store/*', 'store/add', 'mail/send'];
  const resources = ['ixo:*', 'ixo:files/*', 'ixo:files/1'];
  const caveats = [{}, {}, { a: 1 }, { a: 1, b: [true] }];

  function randomChain(random: () => number) {
    const pick = <T>(items: readonly T[]) => items[Math.floor(random() * items.length)] as T;
    const capability = (narrow: number) => ({
      can: pick(abilities.slice(narrow)),
      with: pick(resources.slice(narrow)),
      nb: pick(caveats),
    });
    const blocks: ForgedBlock[] = [];
    const link = (signer: Signer, to: Signer, depth: number): ForgedBlock => {
      const count = depth === 0 ? 0 : 1 + Number(random() < 0.2);
      const proofs = Array.from({ length: count }, () =>
        link(pick(people), random() < 0.95 ? signer : pick(people), depth - 1),
      );
      const capabilities = Array.from({ length: 1 + Number(random() < 0.3) }, () =>
        capability(Math.min(depth, 2)),
      );
      const isForged = random() < 0.05;
      const block = linkFrom(signer, to, proofs, {
        payload: { capabilities, nonce: String(blocks.length) },
        ...(isForged && { signature: (s: Uint8Array) => s.map((b, i) => (i === 40 ? b ^ 1 : b)) }),
      });
      blocks.push(block);
      return block;
    };
    link(pick(people), oracle, Math.floor(random() * 3));
    const token = unwrap(readToken(forgeToken(...blocks)));
    const isUnrelated = (ucan: Ucan) =>
      ucan.proofs.length > 1 &&
      ucan.proofs.some((proof) => token.ucans.get(`${proof}`)?.audience !== ucan.issuer);
    return { token, hasUnrelatedProof: [...token.ucans.values()].some(isUnrelated) };
  }
});
