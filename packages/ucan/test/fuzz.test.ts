import { describe, expect, test } from 'vitest';
import { scale } from '../../../scripts/test-scale.ts';
import type { UcanErrorCode } from '../src/errors.js';
import { forgeToken, forgeUcan } from './support/forge.js';
import { linkFrom } from './support/hostile-chains.js';
import { mutate } from './support/mutations.js';
import { seededRandom } from './support/ucanto-cases.js';
import { alice, bob, oracle, verifierWith } from './support/verifier.js';

const ROUNDS = scale(20_000, 4_000);
const grant = linkFrom(alice, bob, []);
const second = linkFrom(alice, bob, [], { payload: { nonce: '2' } });

const valid = [
  forgeToken(forgeUcan()),
  forgeToken(forgeUcan({ payload: { facts: [{ nonce: 'abc', n: 1 }], nonce: 'n' } })),
  forgeToken(linkFrom(alice, oracle, [], { payload: { facts: [{ b: Uint8Array.of(1, 2) }] } })),
  forgeToken(grant, linkFrom(bob, oracle, [grant])),
  forgeToken(grant, second, linkFrom(bob, oracle, [grant, second])),
];

describe('mutated tokens', () => {
  test('are the mutations of tokens that are good', async () => {
    const verifier = verifierWith();
    const verdicts = await Promise.all(valid.map((token) => verifier.verifyDelegation(token)));
    expect(verdicts.map(({ error }) => error)).toEqual(valid.map(() => undefined));
  });

  test(`none of ${ROUNDS} is accepted, none throws`, { timeout: 120_000 }, async () => {
    const random = seededRandom(2026);
    const verifier = verifierWith();
    const accepted: string[] = [];
    const codes = new Map<UcanErrorCode | 'unchanged', number>();
    for (let i = 0; i < ROUNDS; i += 1) {
      const token = valid[Math.floor(random() * valid.length)] as string;
      const other = valid[Math.floor(random() * valid.length)] as string;
      const mutated = mutate(token, other, random);
      const code = valid.includes(mutated) ? 'unchanged' : await findError(mutated);
      codes.set(code, (codes.get(code) ?? 0) + 1);
    }
    expect(accepted).toEqual([]);
    // The mutations must reach every part of the verifier, not only its first line.
    expect(codes.get('unchanged') ?? 0).toBeLessThan(ROUNDS / 10);
    for (const code of ['base64_invalid', 'cid_mismatch', 'ucan_malformed'] as const) {
      expect(codes.get(code), code).toBeGreaterThan(ROUNDS / 100);
    }
    expect(codes.get('signature_invalid')).toBeGreaterThan(ROUNDS / 10);

    async function findError(mutated: string): Promise<UcanErrorCode> {
      const delegation = await verifier.verifyDelegation(mutated);
      const invocation = await verifier.verifyInvocation(mutated);
      if (delegation.ok || invocation.ok) accepted.push(mutated);
      return (delegation.error as { code: UcanErrorCode }).code;
    }
  });
});
