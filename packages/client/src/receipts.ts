import type { Receipt } from '@sibyl/protocol';
import { canonicalJson, hashJson, toApprovalId } from '@sibyl/protocol/decisions';
import { publicKeyFromDid } from '@sibyl/ucan/browser';

const CONTEXT = 'sibyl receipt 1\n';

/**
 * Checks that a receipt is what the oracle signed, byte for byte, for exactly the call and arguments in it. It does not check
 * the user's own signature: `sibyl receipts verify` does both.
 */
export async function checkReceipt(text: string, approvalId: string): Promise<boolean> {
  const receipt = parseReceipt(text);
  if (!receipt) return false;
  const { signature, ...content } = receipt;
  const { approval, facts, originalArgs } = content;
  const isForCall =
    approval === approvalId &&
    (await toApprovalId(facts)) === approval &&
    (await hashJson(originalArgs)) === facts.argsHash;
  return isForCall && verify(content.oracleKey, CONTEXT + canonicalJson(content), signature);
}

function parseReceipt(text: string): Receipt | undefined {
  try {
    const receipt = JSON.parse(text);
    return canonicalJson(receipt) === text ? receipt : undefined;
  } catch {
    return undefined;
  }
}

async function verify(keyDid: string, text: string, signature: string): Promise<boolean> {
  const { ok: raw } = publicKeyFromDid(keyDid);
  if (!raw) return false;
  const key = await crypto.subtle.importKey('raw', Uint8Array.from(raw), 'Ed25519', false, [
    'verify',
  ]);
  const bytes = Uint8Array.from(atob(signature), (character) => character.charCodeAt(0));
  return crypto.subtle.verify('Ed25519', key, bytes, new TextEncoder().encode(text));
}
