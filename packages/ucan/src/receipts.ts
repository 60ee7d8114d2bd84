import {
  APPROVE_ABILITY,
  buildDecisionClaims,
  canonicalJson,
  hashJson,
  Receipt,
  type Result,
  toApprovalId,
  toOracleResource,
} from '@sibyl/protocol';
import { utf8 } from './codec/bytes.js';
import type { IpldMap } from './codec/ipld.js';
import { signingBytes, type Ucan } from './codec/ucan.js';
import { didFromPublicKey, publicKeyFromDid } from './did/did-key.js';
import { type Signer, verifyEd25519 } from './keys/signer.js';
import { readToken } from './read/read-token.js';

/** Precedes what the oracle signs, so that no UCAN, which begins otherwise, can pass for a receipt. */
const CONTEXT = 'sibyl receipt 1\n';

/** How far the clock of the user may run ahead of the oracle's. */
const SKEW_SECONDS = 30;

export type UnsignedReceipt = Omit<Receipt, 'version' | 'oracle' | 'oracleKey' | 'signature'>;

/** Countersigns a decision with the oracle's key; returns the text of the receipt. */
export function signReceipt(unsigned: UnsignedReceipt, signer: Signer): string {
  const { did: oracle, keyDid: oracleKey } = signer;
  const content = { ...unsigned, version: 1, oracle, oracleKey } as const;
  const signature = Buffer.from(signer.sign(toSignedBytes(content))).toString('base64');
  return canonicalJson({ ...content, signature } satisfies Receipt);
}

const toSignedBytes = (content: Omit<Receipt, 'signature'>): Uint8Array =>
  utf8(CONTEXT + canonicalJson(content));

/**
 * Verifies a receipt without the network and at any later time: the decision had to be valid when the oracle accepted it.
 * Returns its content, or what is wrong with it. A DID that is not a did:key is as good as its key in the receipt: compare that with the DID's document.
 */
export async function verifyReceipt(bytes: Uint8Array): Promise<Result<Receipt, string>> {
  const read = readReceipt(bytes);
  if (read.error !== undefined) return read;
  const receipt = read.ok;
  const error =
    checkCountersignature(receipt) ??
    (await checkHashes(receipt)) ??
    (await checkDecision(receipt));
  return error === undefined ? { ok: receipt } : { error };
}

function readReceipt(bytes: Uint8Array): Result<Receipt, string> {
  let text: string;
  let value: unknown;
  try {
    // Strict, because different bytes must not read as the same text.
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    value = JSON.parse(text);
  } catch {
    return { error: 'It is not JSON' };
  }
  if (!Receipt.safeParse(value).success) return { error: 'It is not a receipt' };
  if (canonicalJson(value) !== text)
    return {
      error: 'It is not byte for byte what the oracle issued; it may have been reformatted',
    };
  return { ok: value as Receipt };
}

function checkCountersignature({ signature, ...content }: Receipt): string | undefined {
  const { oracle, oracleKey } = content;
  const key = readKey(oracle, oracleKey);
  const bytes = Buffer.from(signature, 'base64');
  const isSigned =
    key !== undefined &&
    bytes.toString('base64') === signature &&
    verifyEd25519(key, toSignedBytes(content), bytes);
  return isSigned ? undefined : "The oracle's signature does not fit";
}

async function checkHashes(receipt: Receipt): Promise<string | undefined> {
  const { facts, approval, originalArgs, args, decision } = receipt;
  if ((await toApprovalId(facts)) !== approval) return 'The approval is for another call';
  if ((await hashJson(originalArgs)) !== facts.argsHash) return 'The original arguments differ';
  if (decision === 'deny' && canonicalJson(args) !== canonicalJson(originalArgs))
    return 'A denial has no edited arguments';
  return undefined;
}

async function checkDecision(receipt: Receipt): Promise<string | undefined> {
  const { user, userKey, oracle, invocation, decidedAt } = receipt;
  const { ok: token } = readToken(invocation);
  if (!token) return "The user's invocation cannot be read";
  const { root } = token;
  if (root.issuer !== user) return 'The invocation was issued by another user';
  if (root.audience !== oracle) return 'The invocation is for another oracle';
  const key = readKey(user, userKey);
  if (!key || !verifyEd25519(key, signingBytes(root), root.signature))
    return "The user's signature does not fit";
  const at = Date.parse(decidedAt) / 1000;
  if (root.expiration === null || at >= root.expiration) return 'The decision came too late';
  if ((root.notBefore ?? 0) > at + SKEW_SECONDS) return 'The invocation was not valid yet';
  const claims = await buildDecisionClaims({ ...receipt, id: receipt.approval });
  return states(root, { oracle, claims }) ? undefined : 'The user signed something else';
}

interface Statement {
  readonly oracle: string;
  readonly claims: Readonly<Record<string, string>>;
}

/** Whether the only thing that a UCAN says is this decision. */
function states({ capabilities, proofs }: Ucan, { oracle, claims }: Statement): boolean {
  const [capability, ...others] = capabilities;
  return (
    capability?.can === APPROVE_ABILITY &&
    capability.with === toOracleResource(oracle) &&
    others.length + proofs.length === 0 &&
    hasExactly(capability.nb ?? {}, claims)
  );
}

/** Whether caveats are exactly these texts. */
export function hasExactly(nb: IpldMap, claims: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(claims);
  return (
    Object.keys(nb).length === names.length &&
    names.every((name) => Object.hasOwn(nb, name) && nb[name] === claims[name])
  );
}

/** A did:key is its own key; the receipt cannot name another. */
function readKey(did: string, keyDid: string): Uint8Array | undefined {
  if (did.startsWith('did:key:') && did !== keyDid) return undefined;
  const { ok: key } = publicKeyFromDid(keyDid);
  return key && didFromPublicKey(key) === keyDid ? key : undefined;
}
