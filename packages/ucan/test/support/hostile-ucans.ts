import type { Capability } from '../../src/codec/ucan.js';
import { Entries } from './forge.js';
import {
  didText,
  forged,
  type HostileToken,
  malformed,
  notCanonical,
  withFields,
  withPayload,
} from './hostile-token.js';
import { alice, bob, NOW, oracle } from './verifier.js';

const byteFact = { data: Uint8Array.of(1, 2, 3) };

/** Blocks with other bytes and another CID, yet under one and the same signature. */
const twins: readonly HostileToken[] = [
  notCanonical(
    'extra key',
    withFields((f) => ({ ...f, x: 1 })),
  ),
  notCanonical(
    'empty fct',
    withFields((f) => ({ ...f, fct: [] })),
  ),
  notCanonical(
    'nbf of 0',
    withFields((f) => ({ ...f, nbf: 0 })),
  ),
  notCanonical(
    'empty nonce',
    withFields((f) => ({ ...f, nnc: '' })),
  ),
  malformed(
    'bytes spelled as a map',
    forged({
      payload: { facts: [byteFact] },
      fields: (f) => ({ ...f, fct: [{ data: { '/': { bytes: 'AQID' } } }] }),
    }),
  ),
  malformed(
    'missing prf',
    withFields(({ prf: _, ...f }) => f),
  ),
  {
    name: 'did:key spelled as text',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: didText(alice.did) })),
  },
  {
    name: 'audience did:key spelled as text',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, aud: didText(oracle.did) })),
  },
];

const exp = NOW + 300;

const contents: readonly HostileToken[] = [
  {
    name: 'version 0.10.0',
    code: 'ucan_version',
    token: withFields((f) => ({ ...f, v: '0.10.0' })),
  },
  { name: 'no version', code: 'ucan_version', token: withFields(({ v: _, ...f }) => f) },
  malformed('negative expiry', withPayload({ expiration: -1 })),
  malformed(
    'expiry as text',
    withFields((f) => ({ ...f, exp: String(exp) })),
  ),
  malformed(
    'no expiry field',
    withFields(({ exp: _, ...f }) => f),
  ),
  malformed('negative nbf', withPayload({ notBefore: -1 })),
  malformed(
    'signature as text',
    withFields((f) => ({ ...f, s: 'x' })),
  ),
  malformed(
    'issuer as text',
    withFields((f) => ({ ...f, iss: alice.did })),
  ),
  malformed(
    'audience missing',
    withFields(({ aud: _, ...f }) => f),
  ),
  malformed(
    'capabilities as a map',
    withFields((f) => ({ ...f, att: {} })),
  ),
  malformed(
    'facts as text',
    withFields((f) => ({ ...f, fct: 'x' })),
  ),
  malformed('fact as a list', withPayload({ facts: [[1] as never] })),
  malformed(
    'proof as text',
    withFields((f) => ({ ...f, prf: ['bafy'] })),
  ),
  malformed(
    'ability in capitals',
    withPayload({ capabilities: [{ can: 'Store/Add', with: 'ixo:oracle' }] }),
  ),
  malformed(
    'ability without a slash',
    withPayload({ capabilities: [{ can: 'all', with: 'ixo:oracle' }] }),
  ),
  malformed(
    'resource that is not a URI',
    withPayload({ capabilities: [{ can: '*', with: 'oracle' }] }),
  ),
  malformed(
    'capability with another field',
    withPayload({ capabilities: [{ can: '*', with: 'ixo:oracle', if: 'noon' } as Capability] }),
  ),
  malformed(
    'caveats as a list',
    withPayload({ capabilities: [{ can: '*', with: 'ixo:oracle', nb: [] as never }] }),
  ),
  malformed(
    'capability as text',
    withFields((f) => ({ ...f, att: ['*'] })),
  ),
  malformed(
    '__proto__ as a caveat',
    withFields((f) => ({
      ...f,
      att: [{ can: '*', nb: new Entries([['__proto__', { a: 1 }]]), with: 'ixo:oracle' }],
    })),
  ),
];

const rules: readonly HostileToken[] = [
  { name: 'wrong audience', code: 'wrong_audience', token: withPayload({ audience: bob.did }) },
  {
    name: 'audience below the oracle',
    code: 'wrong_audience',
    token: withPayload({ audience: 'did:web:oracle' }),
  },
  { name: 'no expiry', code: 'expiry_missing', token: withPayload({ expiration: null }) },
  { name: 'expired', code: 'expired', token: withPayload({ expiration: NOW - 1 }) },
  { name: 'expires this second', code: 'expired', token: withPayload({ expiration: NOW }) },
  {
    name: 'expires too late',
    code: 'expiry_too_far',
    token: withPayload({ expiration: NOW + 931 }),
  },
  { name: 'not yet valid', code: 'not_yet_valid', token: withPayload({ notBefore: NOW + 31 }) },
  { name: 'no capability', code: 'wrong_capability', token: withPayload({ capabilities: [] }) },
  {
    name: 'two capabilities',
    code: 'wrong_capability',
    token: withPayload({
      capabilities: [
        { can: '*', with: 'ixo:oracle' },
        { can: '*', with: 'ixo:oracle' },
      ],
    }),
  },
  {
    name: 'narrower ability',
    code: 'wrong_capability',
    token: withPayload({ capabilities: [{ can: 'a/*', with: 'ixo:oracle' }] }),
  },
  {
    name: 'other resource',
    code: 'wrong_capability',
    token: withPayload({ capabilities: [{ can: '*', with: 'ixo:oracle:*' }] }),
  },
  {
    name: 'caveats',
    code: 'has_caveats',
    token: withPayload({ capabilities: [{ can: '*', with: 'ixo:oracle', nb: { a: 1 } }] }),
  },
];

/** One UCAN, well encoded, that says something it may not. */
export const hostileUcans: readonly HostileToken[] = [...twins, ...contents, ...rules];
