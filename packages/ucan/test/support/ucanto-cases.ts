import type { UcantoFields } from './ucanto-tokens.js';
import { bob, NOW, oracle } from './verifier.js';

interface UcantoCase {
  readonly name: string;
  readonly fields: UcantoFields;
}

const base = {
  audience: oracle.did,
  capabilities: [{ can: '*', with: 'ixo:oracle' }],
  expiration: NOW + 300,
};

const handmade: readonly UcantoCase[] = [
  { name: 'plain', fields: base },
  { name: 'nonce', fields: { ...base, nonce: 'abc' } },
  { name: 'not before', fields: { ...base, notBefore: NOW - 1 } },
  { name: 'facts', fields: { ...base, facts: [{ nonce: 'x' }, { b: 1, a: [null, true, false] }] } },
  { name: 'did:ixo audience', fields: { ...base, audience: 'did:ixo:entity:abc' } },
  { name: 'did:web audience', fields: { ...base, audience: 'did:web:example.org%3A8080' } },
  { name: 'empty caveats', fields: { ...base, capabilities: [{ can: '*', with: 'a:b', nb: {} }] } },
  {
    name: 'numbers of every size',
    fields: {
      ...base,
      facts: [{ n: [0, 23, 24, 255, 256, 65535, 65536, 2 ** 32 - 1, 2 ** 32, 2 ** 53 - 1] }],
    },
  },
  {
    name: 'numbers below zero and between',
    fields: {
      ...base,
      facts: [{ n: [-1, -24, -25, -256, -257, -(2 ** 53 - 1), 0.5, -1e-7, 1.5e300 / 7e290] }],
    },
  },
  {
    name: 'keys of every order',
    fields: {
      ...base,
      facts: [
        { bb: 1, a: 2, ab: 3, b: 4, é: 5, '\u{1F600}': 6, '\uFB01': 7, aaa: 8, Z: 9, '': 10 },
      ],
    },
  },
  {
    name: 'text that JSON escapes',
    fields: { ...base, facts: [{ t: '"\\/\b\f\n\r\t\u0001\u007f\u2028<>&\u{1F600}' }] },
  },
  { name: 'bytes', fields: { ...base, facts: [{ b: Uint8Array.of(1, 2, 3, 250, 251) }] } },
  {
    name: 'many capabilities',
    fields: {
      ...base,
      capabilities: Array.from({ length: 16 }, (_, n) => ({
        can: `a/b${n}`,
        with: `ixo:x/${n}`,
        nb: { n, to: bob.did },
      })),
    },
  },
  {
    name: '64 capabilities',
    fields: {
      ...base,
      capabilities: Array.from({ length: 64 }, (_, n) => ({ can: `a/b${n}`, with: bob.did })),
    },
  },
];

/** The same in every run (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Any value that a caveat or a fact may hold. */
function anyValue(random: () => number, depth: number): unknown {
  const pick = Math.floor(random() * (depth > 3 ? 6 : 8));
  const length = Math.floor(random() * 5);
  switch (pick) {
    case 0:
      return null;
    case 1:
      return random() < 0.5;
    case 2:
      return Math.floor((random() - 0.5) * 2 ** Math.floor(random() * 53));
    case 3:
      return random() + 0.001;
    case 4:
      return anyText(random);
    case 5:
      return Uint8Array.from({ length: length * 9 }, () => Math.floor(random() * 256));
    case 6:
      return Array.from({ length }, () => anyValue(random, depth + 1));
    default:
      return anyMap(random, depth + 1);
  }
}

function anyText(random: () => number): string {
  const codes = Array.from({ length: Math.floor(random() * 30) }, () =>
    random() < 0.8 ? 32 + random() * 95 : 0xa0 + random() * 0x5000,
  );
  return String.fromCodePoint(...codes.map(Math.floor));
}

function anyMap(random: () => number, depth: number): Record<string, unknown> {
  const entries = Array.from({ length: Math.floor(random() * 5) }, () => [
    `k${anyText(random)}`,
    anyValue(random, depth),
  ]);
  return Object.fromEntries(entries);
}

const generated = Array.from({ length: 100 }, (_, i): UcantoCase => {
  const random = seededRandom(i);
  const notBefore = random() < 0.5 ? { notBefore: NOW - Math.floor(random() * 100) } : {};
  return {
    name: `generated ${i}`,
    fields: {
      ...base,
      ...notBefore,
      capabilities: [{ can: 'a/b', with: `ixo:${i}`, nb: anyMap(random, 0) }],
      facts: [anyMap(random, 0), anyMap(random, 0)],
    },
  };
});

/** What ucanto is asked to write, so that our bytes can be compared with its own. */
export const ucantoCases: readonly UcantoCase[] = [...handmade, ...generated];
