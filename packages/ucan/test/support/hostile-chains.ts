import { concat } from '../../src/codec/bytes.js';
import { Link } from '../../src/codec/ipld.js';
import type { Capability, UcanPayload } from '../../src/codec/ucan.js';
import type { Signer } from '../../src/keys/signer.js';
import {
  archiveRoot,
  carBlock,
  carHeader,
  createBlock,
  type ForgedBlock,
  type Forgery,
  forgeToken,
  forgeUcan,
  toText,
} from './forge.js';
import type { HostileToken } from './hostile-token.js';
import { alice, bob, NOW, oracle, signerNamed } from './verifier.js';

const carol = signerNamed('carol');
const GRANT: Capability = { can: 'store/*', with: 'ixo:files/*' };
const CLAIM: Capability = { can: 'store/add', with: 'ixo:files/1' };

/** A link of a chain from one signer to another. */
export function linkFrom(
  signer: Signer,
  to: Signer,
  proofs: readonly ForgedBlock[],
  more: Forgery = {},
): ForgedBlock {
  return forgeUcan({
    ...more,
    signer,
    payload: {
      audience: to.did,
      capabilities: [GRANT],
      proofs: proofs.map((proof) => proof.link),
      ...more.payload,
    },
  });
}

const grant = linkFrom(alice, bob, []);

/** alice → bob → oracle with something changed. */
function chain(first: Partial<UcanPayload>, second: Partial<UcanPayload> = {}): string {
  const proof = linkFrom(alice, bob, [], { payload: first });
  return forgeToken(proof, linkFrom(bob, oracle, [proof], { payload: second }));
}

function line(length: number): ForgedBlock[] {
  const blocks = [linkFrom(alice, alice, [])];
  for (let i = 1; i < length; i += 1) {
    const to = i === length - 1 ? oracle : alice;
    blocks.push(linkFrom(alice, to, blocks.slice(-1)));
  }
  return blocks;
}

const nonced = (nonce: string, to = alice, proofs: readonly ForgedBlock[] = []) =>
  linkFrom(alice, to, proofs, { payload: { nonce } });

/** Two UCANs a layer, each resting on both of the layer below. */
export function diamond(layers: number): ForgedBlock[] {
  const blocks: ForgedBlock[] = [];
  let below: ForgedBlock[] = [];
  for (let i = 0; i < layers; i += 1) {
    below = [nonced(`${i}a`, alice, below), nonced(`${i}b`, alice, below)];
    blocks.push(...below);
  }
  return [...blocks, linkFrom(alice, oracle, below)];
}

/** 1 + 2 + 4 + 2 UCANs in four layers. */
function nineUcans(): ForgedBlock[] {
  const leaves = ['1', '2'].map((n) => nonced(n));
  const thirds = ['3', '4', '5', '6'].map((n, i) => nonced(n, alice, i === 0 ? leaves : []));
  const seconds = [nonced('7', alice, thirds.slice(0, 2)), nonced('8', alice, thirds.slice(2))];
  return [...leaves, ...thirds, ...seconds, linkFrom(alice, oracle, seconds)];
}

/** Two UCANs that rest on each other, possible only under CIDs that are not their hashes. */
function cycle(): string {
  const names = [1, 2].map(
    (n) => new Link(concat([[1, 0x71, 0x12, 0x20], new Uint8Array(32).fill(n)])),
  );
  const [a, b] = names as [Link, Link];
  const first = linkFrom(alice, alice, [{ link: b, bytes: a.bytes }]);
  const second = linkFrom(alice, oracle, [{ link: a, bytes: a.bytes }]);
  return forgeToken({ link: a, bytes: first.bytes }, { link: b, bytes: second.bytes });
}

function selfCycle(): string {
  const name = new Link(concat([[1, 0x71, 0x12, 0x20], new Uint8Array(32).fill(3)]));
  const ucan = linkFrom(alice, oracle, [{ link: name, bytes: name.bytes }]);
  return forgeToken({ link: name, bytes: ucan.bytes });
}

const three = ['1', '2', '3'].map((n) => nonced(n));
const unrelated = nonced('unrelated');
const top = linkFrom(bob, oracle, [grant]);

function unreachable(): string {
  const root = archiveRoot(top.link);
  const head = carHeader({ roots: [root.link], version: 1 });
  return toText(concat([head, ...[root, grant, top, unrelated].map(carBlock)]));
}

const shapes: readonly HostileToken[] = [
  { name: 'missing proof', code: 'proof_missing', token: forgeToken(top) },
  { name: 'unreachable UCAN', code: 'block_unreachable', token: unreachable() },
  {
    name: 'foreign block',
    code: 'ucan_malformed',
    token: forgeToken(grant, createBlock(Uint8Array.of(0x80)), top),
  },
  { name: 'depth 5', code: 'too_deep', token: forgeToken(...line(5)) },
  {
    name: 'three proofs',
    code: 'too_many_proofs',
    token: forgeToken(...three, linkFrom(alice, oracle, three)),
  },
  { name: 'nine UCANs', code: 'too_many_ucans', token: forgeToken(...nineUcans()) },
  { name: 'diamond of ten layers', code: 'token_too_long', token: forgeToken(...diamond(10)) },
  { name: 'diamond of six layers', code: 'car_too_many_blocks', token: forgeToken(...diamond(6)) },
  { name: 'diamond of four layers', code: 'too_many_ucans', token: forgeToken(...diamond(4)) },
  { name: 'cyclic proofs', code: 'cid_mismatch', token: cycle() },
  { name: 'proof of itself', code: 'cid_mismatch', token: selfCycle() },
];

const at = (n: number): Capability => ({ can: 'store/add', with: `ixo:files/${n}` });

const rules: readonly HostileToken[] = [
  {
    name: 'delegation to another audience',
    code: 'wrong_audience',
    token: forgeToken(linkFrom(alice, bob, [])),
  },
  {
    name: 'expiry in milliseconds',
    code: 'expiry_too_far',
    token: chain({ expiration: null }, { expiration: NOW * 1000 }),
  },
  {
    name: 'the latest expiry that CBOR can carry',
    code: 'expiry_too_far',
    token: chain({ expiration: null }, { expiration: Number.MAX_SAFE_INTEGER }),
  },
  {
    name: 'proof that expires after the year 9999',
    code: 'expiry_too_far',
    token: chain({ expiration: 253_402_300_800 }),
  },
  {
    name: 'delegation of nothing',
    code: 'wrong_capability',
    token: chain({}, { capabilities: [] }),
  },
  { name: 'expired delegation', code: 'expired', token: chain({}, { expiration: NOW - 1 }) },
  {
    name: 'expired proof',
    code: 'expired',
    token: chain({ expiration: NOW }, { expiration: NOW + 1 }),
  },
  {
    name: 'proof not yet valid',
    code: 'not_yet_valid',
    token: chain({ notBefore: NOW + 31 }, { notBefore: NOW + 31 }),
  },
  { name: 'outlives its proof', code: 'time_bounds', token: chain({ expiration: NOW + 299 }) },
  {
    name: 'outlives its proof for ever',
    code: 'time_bounds',
    token: chain({}, { expiration: null }),
  },
  {
    name: 'starts before its proof',
    code: 'time_bounds',
    token: chain({ notBefore: NOW - 5 }, { notBefore: NOW - 6 }),
  },
  {
    name: 'no start, though its proof has one',
    code: 'time_bounds',
    token: chain({ notBefore: NOW - 5 }),
  },
  {
    name: 'proof for another audience',
    code: 'chain_broken',
    token: chain({ audience: carol.did }),
  },
  {
    name: 'more abilities than granted',
    code: 'escalation',
    token: chain({}, { capabilities: [CLAIM, { can: 'space/add', with: 'ixo:files/1' }] }),
  },
  {
    name: 'all abilities from some',
    code: 'escalation',
    token: chain({}, { capabilities: [{ can: '*', with: 'ixo:files/1' }] }),
  },
  {
    name: 'other resource than granted',
    code: 'escalation',
    token: chain({}, { capabilities: [{ can: 'store/add', with: 'ixo:mail/1' }] }),
  },
  {
    name: 'caveat dropped',
    code: 'escalation',
    token: chain({ capabilities: [{ ...GRANT, nb: { size: 1 } }] }, { capabilities: [CLAIM] }),
  },
  {
    name: 'caveat changed',
    code: 'escalation',
    token: chain(
      { capabilities: [{ ...GRANT, nb: { size: 1 } }] },
      { capabilities: [{ ...CLAIM, nb: { size: 2 } }] },
    ),
  },
  {
    name: 'ucan:* grants nothing else',
    code: 'escalation',
    token: chain({ capabilities: [{ can: '*', with: 'ucan:*' }] }),
  },
  {
    name: '65 capabilities',
    code: 'too_many_capabilities',
    token: forgeToken(
      linkFrom(alice, oracle, [], {
        payload: { capabilities: Array.from({ length: 65 }, (_, n) => at(n)) },
      }),
    ),
  },
  {
    name: 'proof signed by another key',
    code: 'signature_invalid',
    token: forgedProof({ issuer: alice.did }, carol),
  },
];

function forgedProof(payload: Partial<UcanPayload>, signer: Signer): string {
  const proof = linkFrom(signer, bob, [], { payload });
  return forgeToken(proof, linkFrom(bob, oracle, [proof]));
}

/** Wrong as delegations. */
export const hostileChains: readonly HostileToken[] = [
  ...[...shapes, ...rules].map((hostile) => ({ ...hostile, purpose: 'delegation' as const })),
  { name: 'proofs on an invocation', code: 'has_proofs', token: authWithProof() },
];

function authWithProof(): string {
  const auth: Capability = { can: '*', with: 'ixo:oracle' };
  const proof = linkFrom(alice, bob, [], { payload: { capabilities: [auth] } });
  return forgeToken(proof, linkFrom(bob, oracle, [proof], { payload: { capabilities: [auth] } }));
}
