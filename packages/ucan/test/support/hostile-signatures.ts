import { concat } from '../../src/codec/bytes.js';
import { didText, forged, type HostileToken, withFields } from './hostile-token.js';
import { alice, bob } from './verifier.js';

const es256k = [0xe7, 0xa1, 0x03, 0x40];
const secp256k1 = concat([[0xe7, 0x01, 0x02], new Uint8Array(32).fill(7)]);

/** A UCAN whose issuer cannot have signed it. */
export const hostileSignatures: readonly HostileToken[] = [
  {
    name: 'secp256k1 issuer',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: secp256k1 })),
  },
  {
    name: 'issuer key of 33 bytes',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: concat([f.iss as Uint8Array, [0]]) })),
  },
  {
    name: 'issuer key of 31 bytes',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: (f.iss as Uint8Array).subarray(0, -1) })),
  },
  {
    name: 'issuer that is not a DID',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: didText('did:ixo:a b') })),
  },
  {
    name: 'issuer with a fragment',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: didText('did:ixo:a#key') })),
  },
  {
    name: 'empty issuer',
    code: 'principal_unsupported',
    token: withFields((f) => ({ ...f, iss: new Uint8Array() })),
  },
  {
    name: 'wrong algorithm',
    code: 'signature_malformed',
    token: forged({ signature: (s) => concat([es256k, s.subarray(4)]) }),
  },
  {
    name: '63-byte signature',
    code: 'signature_malformed',
    token: forged({ signature: (s) => s.subarray(0, -1) }),
  },
  {
    name: '63-byte signature that says so',
    code: 'signature_malformed',
    token: forged({ signature: (s) => concat([[0xed, 0xa1, 3, 63], s.subarray(4, -1)]) }),
  },
  {
    name: '65-byte signature',
    code: 'signature_malformed',
    token: forged({ signature: (s) => concat([s, [0]]) }),
  },
  {
    name: '65-byte signature that says so',
    code: 'signature_malformed',
    token: forged({ signature: (s) => concat([[0xed, 0xa1, 3, 65], s.subarray(4), [0]]) }),
  },
  {
    name: 'empty signature',
    code: 'signature_malformed',
    token: forged({ signature: () => new Uint8Array() }),
  },
  {
    name: 'signed by another key',
    code: 'signature_invalid',
    token: forged({ signer: bob, payload: { issuer: alice.did } }),
  },
  {
    name: 'signature of zeros',
    code: 'signature_invalid',
    token: forged({ signature: (s) => concat([s.subarray(0, 4), new Uint8Array(64)]) }),
  },
  { name: 'S + L', code: 'signature_invalid', token: forged({ signature: plusGroupOrder }) },
  {
    name: 'small-order key',
    code: 'weak_key',
    token: forged({
      fields: (f) => ({ ...f, iss: concat([[0xed, 1, 1], new Uint8Array(31)]) }),
      // R is the identity and S is 0: fits every message under the key of order 1.
      signature: (s) => concat([s.subarray(0, 4), [1], new Uint8Array(63)]),
    }),
  },
];

/** The same signature with the other S that naive verifiers accept. */
export function plusGroupOrder(signature: Uint8Array): Uint8Array {
  const order = 2n ** 252n + 27742317777372353535851937790883648493n;
  const s = Buffer.from(signature.subarray(36)).reverse().toString('hex');
  const raised = (BigInt(`0x${s}`) + order).toString(16).padStart(64, '0');
  return concat([signature.subarray(0, 36), Buffer.from(raised, 'hex').reverse()]);
}
