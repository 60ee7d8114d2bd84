import { decodeBase58 } from '../did/base58.js';
import { didFromPublicKey, ed25519FromMulticodec } from '../did/did-key.js';
import { concat, utf8 } from './bytes.js';

const ED25519 = [0xed, 0x01];
/** Multicodec of a DID that is written out as text. */
const DID_CORE = [0x9d, 0x1a];
/** A DID of any method that is looked up; a did:key is its own key and never text. */
const DID = /^did:(?!key:)[a-z0-9]+:[A-Za-z0-9._%:-]{1,256}$/;

/** The bytes of a DID as a UCAN stores it, or nothing when it is no DID that can sign here. */
export function encodePrincipal(did: string): Uint8Array | undefined {
  if (did.startsWith('did:key:z')) {
    const bytes = decodeBase58(did.slice('did:key:z'.length));
    return bytes && ed25519FromMulticodec(bytes) && bytes;
  }
  return DID.test(did) ? concat([DID_CORE, utf8(did.slice('did:'.length))]) : undefined;
}

/** The DID in a UCAN's bytes; a did:key spelled as text would give one signature two blocks. */
export function decodePrincipal(bytes: Uint8Array): string | undefined {
  const [first, second] = bytes;
  const rest = bytes.subarray(2);
  if (first === ED25519[0] && second === ED25519[1]) {
    return rest.length === 32 ? didFromPublicKey(rest) : undefined;
  }
  if (first !== DID_CORE[0] || second !== DID_CORE[1] || rest.some((byte) => byte > 127)) {
    return undefined;
  }
  const did = `did:${String.fromCharCode(...rest.subarray(0, 512))}`;
  return DID.test(did) ? did : undefined;
}
