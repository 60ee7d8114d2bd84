import type { Result } from '@sibyl/protocol';
import { expect, test } from 'vitest';
import { forgeToken, forgeUcan } from '../../test/support/forge.js';
import { linkFrom } from '../../test/support/hostile-chains.js';
import { alice, bob, oracle, signerNamed, verifierWith } from '../../test/support/verifier.js';

const ROUNDS = 40;
const carol = signerNamed('carol');
const list = (length: number) =>
  Array.from({ length }, (_, n) => ({ can: 'a/b', with: `ixo:${n}` }));

/** Three layers of 4, 2 and 1 UCANs: as many capabilities as fit into a token. */
function deepDelegation(nonce: string, proofNonce: string): string {
  const payload = (name: string) => ({ payload: { capabilities: list(16), nonce: name } });
  const ground = ['1', '2', '3', '4'].map((n) =>
    linkFrom(alice, bob, [], payload(`${proofNonce}-${n}`)),
  );
  const middle = ['5', '6'].map((n, i) =>
    linkFrom(bob, carol, ground.slice(2 * i, 2 * i + 2), payload(`${proofNonce}-${n}`)),
  );
  return forgeToken(...ground, ...middle, linkFrom(carol, oracle, middle, payload(nonce)));
}

/** A layer of 2 UCANs and one of 1, each with as many capabilities as a UCAN may have. */
function wideDelegation(nonce: string, proofNonce: string): string {
  const payload = (name: string) => ({ payload: { capabilities: list(64), nonce: name } });
  const proofs = ['1', '2'].map((n) => linkFrom(alice, bob, [], payload(`${proofNonce}-${n}`)));
  return forgeToken(...proofs, linkFrom(bob, oracle, proofs, payload(nonce)));
}

/** Microseconds of CPU for a token of each kind, each seen for the first time. */
async function measure(
  make: (nonce: string) => string,
  verify: (token: string) => Promise<Result<unknown, unknown>>,
): Promise<number> {
  const tokens = Array.from({ length: ROUNDS }, (_, n) => make(`${n}`));
  const before = process.threadCpuUsage();
  for (const token of tokens) expect(await verify(token)).toHaveProperty('ok');
  const { user, system } = process.threadCpuUsage(before);
  return (user + system) / ROUNDS;
}

test.each([
  ['7 UCANs of 16 capabilities', deepDelegation],
  ['3 UCANs of 64 capabilities', wideDelegation],
])('verifyDelegation takes a few times as long for %s as for a plain token', async (_, make) => {
  const verifier = verifierWith();
  const delegate = (token: string) => verifier.verifyDelegation(token);
  const round = async (name: string) => {
    const plain = await measure(
      (n) => forgeToken(forgeUcan({ payload: { nonce: name + n } })),
      (token) => verifier.verifyInvocation(token),
    );
    const fresh = await measure((n) => make(name + n, name + n), delegate);
    const sameProofs = await measure((n) => make(`again${name}${n}`, name), delegate);
    return { fresh: fresh / plain, sameProofs: sameProofs / plain };
  };
  // The first rounds compile the code; afterwards one that nothing disturbed will do.
  await round('warm up');
  const rounds = [await round('a'), await round('b'), await round('c')];
  // About 8 and 5 for the deep one, which is charged as many units as plain tokens: 7 or 1 for signatures, 7 for its length.
  expect(Math.min(...rounds.map(({ fresh }) => fresh))).toBeLessThan(14);
  expect(Math.min(...rounds.map(({ sameProofs }) => sameProofs))).toBeLessThan(8);
});
