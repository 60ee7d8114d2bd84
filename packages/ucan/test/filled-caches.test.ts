import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { createCachedResolver } from '../src/did/cached-resolver.js';
import { createMinter } from '../src/mint/mint.js';
import { createMemorySingleUseStore, createRevocationSet } from '../src/verify/revocations.js';
import { forgeToken } from './support/forge.js';
import { linkFrom } from './support/hostile-chains.js';
import { alice, clock, NOW, oracle, unwrap, verifierWith } from './support/verifier.js';

const MIB = 1024 ** 2;
/** For what a test itself leaves behind: compiled code, hidden classes, module-wide caches. */
const SLACK_BYTES = 3 * MIB;

/** Each fills one cache of 2 MiB with several times as much, and returns what keeps it alive. */
const fills: readonly [name: string, limitBytes: number, fill: () => Promise<unknown>][] = [
  [
    'verdicts on delegations',
    2 * MIB + 0.5 * MIB,
    async () => {
      const verifier = verifierWith({ cacheBytes: 2 * MIB });
      for (let i = 0; i < 1000; i++) unwrap(await verifier.verifyDelegation(largeDelegation(i)));
      return verifier;
    },
  ],
  [
    'DID documents, found and refused',
    4 * MIB,
    async () => {
      const resolver = createCachedResolver({ resolver: inventedDids, clock, cacheBytes: 2 * MIB });
      for (let i = 0; i < 8000; i++) await resolver.resolve(`did:web:${i}.${'x'.repeat(1000)}`);
      return resolver;
    },
  ],
  [
    'minted invocations',
    2 * MIB,
    async () => {
      const minter = createMinter({ signer: oracle, clock, cacheBytes: 2 * MIB });
      const delegation = unwrap(await verifierWith().verifyDelegation(largeDelegation(0)));
      for (let i = 0; i < 1500; i++)
        unwrap(
          minter.mint({ delegation, audience: alice.did, can: 'store/add', with: `ixo:0/${i}` }),
        );
      return minter;
    },
  ],
  [
    'revoked CIDs',
    2 * MIB,
    async () => {
      const revocations = createRevocationSet({ clock, maxBytes: 2 * MIB });
      for (let i = 0; i < 40_000; i++) revocations.add(cidLike(i), NOW + 100);
      expect(revocations.add('one more', NOW + 100)).toBe(false);
      return revocations;
    },
  ],
  [
    'spent tokens',
    2 * MIB,
    async () => {
      const spent = createMemorySingleUseStore({ clock, maxBytes: 2 * MIB });
      for (let i = 0; i < 40_000; i++) await spent.claim(cidLike(i), NOW + 100);
      expect(await spent.claim('one more', NOW + 100)).toBe(false);
      return spent;
    },
  ],
];

describe('caches filled by strangers', () => {
  it.each(fills)('%s take at most %i bytes of heap', async (_, limitBytes, fill) => {
    const before = heapUsed();
    const kept = await fill();
    expect(heapUsed() - before).toBeLessThan(limitBytes + SLACK_BYTES);
    expect(kept).toBeDefined();
  });
});

/** About 6 kB, most of it caveats, which the verdict keeps. */
function largeDelegation(n: number): string {
  const capabilities = Array.from({ length: 8 }, (_, i) => ({
    can: 'store/*',
    with: i === 0 ? 'ixo:0/*' : `ixo:${n}/${i}`,
    ...(i > 0 && { nb: Object.fromEntries(fields(n)) }),
  }));
  return forgeToken(linkFrom(alice, oracle, [], { payload: { capabilities } }));
}

const fields = (n: number) => Array.from({ length: 15 }, (_, i) => [`${n}-${i}`, `${n}`] as const);

const cidLike = (n: number): string => `bafyrei${String(n).padStart(52, 'a')}`;

/** Every second DID has a key, the others do not exist. */
const inventedDids = {
  resolve: async (did: string) =>
    Number.parseInt(did.slice(8), 10) % 2 === 0
      ? { ok: [new Uint8Array(32)] }
      : { error: { code: 'did_not_found', detail: did } as const },
};

function heapUsed(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  const { heapUsed: heap, external } = process.memoryUsage();
  return heap + external;
}
