import { didFromPublicKey, ed25519FromMulticodec } from '../did/did-key.js';
import { base64url, concat, decodeBase58, utf8, varint } from './bytes.js';
import { encodeCbor } from './cbor.js';
import { encodeDagJson, type Ipld, type IpldMap, type Link } from './ipld.js';

export const UCAN_VERSION = '0.9.1';

/** EdDSA as a varint, then the length of the 64 bytes that follow. */
export const SIGNATURE_HEAD = Uint8Array.of(0xed, 0xa1, 0x03, 0x40);
export const SIGNATURE_LENGTH = 68;

/** The right to do something to something, narrowed by caveats. */
export interface Capability {
  readonly can: string;
  readonly with: string;
  readonly nb?: IpldMap;
}

/** The one capability of an auth invocation. */
export const AUTH_CAPABILITY: Capability = { can: '*', with: 'ixo:oracle' };

/** What a UCAN says; everything but the signature. */
export interface UcanPayload {
  readonly issuer: string;
  readonly audience: string;
  readonly capabilities: readonly Capability[];
  readonly expiration: number | null;
  readonly notBefore?: number;
  readonly nonce?: string;
  readonly facts: readonly IpldMap[];
  readonly proofs: readonly Link[];
}

const JWT_HEADER = base64url(utf8(`{"alg":"EdDSA","typ":"JWT","ucv":"${UCAN_VERSION}"}`));

/** The bytes an issuer signs. */
export function signingBytes(payload: UcanPayload): Uint8Array {
  const json = encodeDagJson({
    ...optionalFields(payload),
    iss: payload.issuer,
    aud: payload.audience,
    att: attenuations(payload),
    exp: payload.expiration,
    prf: payload.proofs.map(String),
  });
  return utf8(`${JWT_HEADER}.${base64url(utf8(json))}`);
}

/** The block of a UCAN, or undefined if issuer or audience is not a DID it can hold. */
export function encodeUcan(payload: UcanPayload, signature: Uint8Array): Uint8Array | undefined {
  const iss = encodePrincipal(payload.issuer);
  const aud = encodePrincipal(payload.audience);
  return iss && aud && encodeUcanFields(payload, { iss, aud, s: signature });
}

/** The same, given the fields that the payload has in another form. */
export function encodeUcanFields(
  payload: UcanPayload,
  fields: Readonly<Record<'iss' | 'aud' | 's', Uint8Array>>,
): Uint8Array {
  return encodeCbor({
    ...optionalFields(payload),
    ...fields,
    v: UCAN_VERSION,
    att: attenuations(payload),
    exp: payload.expiration,
    prf: payload.proofs,
  });
}

// Absent and empty read the same, and ucanto leaves out what is empty.
function optionalFields({ facts, nonce, notBefore }: UcanPayload): IpldMap {
  return {
    ...(facts.length > 0 && { fct: facts }),
    ...(nonce && { nnc: nonce }),
    ...(notBefore && { nbf: notBefore }),
  };
}

function attenuations({ capabilities }: UcanPayload): IpldMap[] {
  return capabilities.map(({ can, with: resource, nb }) => ({
    can,
    with: resource,
    ...(nb && { nb }),
  }));
}

/** A token signed here. */
export interface MintedToken {
  readonly cid: string;
  /** Unix seconds; Infinity if the token never expires. */
  readonly expiration: number;
  /** Base64 of the archive, proofs included. */
  readonly token: string;
}

/** Unix time in whole seconds, injected so that every time rule can be tested. */
export type Clock = () => number;

export const systemClock: Clock = () => Math.floor(Date.now() / 1000);

export interface Block {
  readonly link: Link;
  readonly bytes: Uint8Array;
}

/** The bytes of the block that says which UCAN an archive is about. */
export const encodeArchiveRoot = (link: Link): Uint8Array =>
  encodeCbor({ [`ucan@${UCAN_VERSION}`]: link });

/** A CARv1 with one root, its block last, as ucanto writes it. */
export function encodeCar(root: Block, blocks: readonly Block[]): Uint8Array {
  const header: Ipld = { roots: [root.link], version: 1 };
  const sections = [...blocks, root].map(({ link, bytes }) => concat([link.bytes, bytes]));
  return concat(
    [encodeCbor(header), ...sections].flatMap((section) => [varint(section.length), section]),
  );
}

const ED25519 = [0xed, 0x01];
/** Multicodec of a DID that is written out as text. */
const DID_CORE = [0x9d, 0x1a];
/** A DID of any method that is looked up; a did:key is its own key and never text. */
const DID = /^did:(?!key:)[a-z0-9]+:[A-Za-z0-9._%:-]{1,256}$/;

/** The bytes of a DID as a UCAN stores it, or undefined if it is not a DID that can sign here. */
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

/** One UCAN that `readToken` accepted; its signature is not verified yet. */
export interface Ucan extends UcanPayload {
  readonly cid: string;
  readonly bytes: Uint8Array;
  readonly signature: Uint8Array;
}

/** A token that `readToken` accepted: the outermost UCAN and the chain of its proofs. */
export interface Token {
  readonly text: string;
  readonly root: Ucan;
  /** Every UCAN of the chain by its CID, `root` among them. */
  readonly ucans: ReadonlyMap<string, Ucan>;
}

/** The limits of `readToken`; every later step relies on them. */
export const LIMITS = {
  characters: 8192,
  blocks: 10,
  ucans: 8,
  depth: 4,
  proofs: 2,
  capabilities: 64,
} as const;
