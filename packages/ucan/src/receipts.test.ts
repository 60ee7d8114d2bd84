import {
  APPROVE_ABILITY,
  type ApprovalDecision,
  buildDecisionClaims,
  canonicalJson,
  hashJson,
  type Receipt,
  toApprovalId,
  toOracleResource,
} from '@sibyl/protocol';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { generateSigner } from './keys/signer.js';
import { mintDelegation } from './mint/mint.js';
import { signReceipt, type UnsignedReceipt, verifyReceipt } from './receipts.js';

const alice = generateSigner();
const oracle = generateSigner();
const DECIDED_AT = '2026-03-01T12:00:00.000Z';
const seconds = Date.parse(DECIDED_AT) / 1000;

const toBytes = (text: string) => new TextEncoder().encode(text);

interface Terms {
  readonly signer?: typeof alice;
  readonly expiration?: number;
  readonly notBefore?: number;
  readonly can?: string;
  readonly nb?: object;
  readonly audience?: string;
}

/** What a user signs. */
async function mint(decided: ApprovalDecision, terms: Terms = {}): Promise<string> {
  const { signer = alice, expiration = seconds + 60, notBefore, can = APPROVE_ABILITY } = terms;
  const { audience = oracle.did, nb = await buildDecisionClaims(decided) } = terms;
  const minted = mintDelegation({
    signer,
    audience,
    capabilities: [{ can, with: toOracleResource(oracle.did), nb: nb as never }],
    expiration,
    ...(notBefore !== undefined && { notBefore }),
  });
  return minted.ok?.token ?? '';
}

/** What an honest oracle issues for a denial or an approval. */
async function decide(
  decision: 'approve' | 'deny' = 'approve',
  terms: Terms = {},
): Promise<UnsignedReceipt> {
  const originalArgs = { to: 'bob', amount: 50, note: 'für 10 € \u{1F600}', 10: 'ten', 9: 'nine' };
  const facts = {
    sessionId: 'session',
    runId: 'run',
    call: 'call_0',
    tool: 'transfer',
    plugin: 'bank',
    argsHash: await hashJson(originalArgs),
  };
  const approval = await toApprovalId(facts);
  const args = decision === 'approve' ? { ...originalArgs, amount: 20 } : originalArgs;
  const reason = 'because \ufffd';
  const invocation = await mint({ id: approval, decision, originalArgs, args, reason }, terms);
  return {
    approval,
    facts,
    decision,
    originalArgs,
    args,
    reason,
    user: alice.did,
    userKey: alice.did,
    invocation,
    decidedAt: DECIDED_AT,
  };
}

const issue = (unsigned: UnsignedReceipt) => toBytes(signReceipt(unsigned, oracle));

afterEach(() => vi.useRealTimers());

describe('verifyReceipt', () => {
  it('accepts what the oracle issued, also years later', async () => {
    const bytes = issue(await decide());
    expect((await verifyReceipt(bytes)).ok).toMatchObject({ decision: 'approve' });
    vi.useFakeTimers({ now: Date.parse('2041-03-01T12:00:00Z') });
    expect((await verifyReceipt(bytes)).ok).toMatchObject({ decision: 'approve' });
  });

  it('rejects every copy with one changed, missing or additional byte', async () => {
    const bytes = issue(await decide());
    const changes = [1, 0x20, 0x1f, 0x80, 0xff];
    for (const [i, byte] of bytes.entries()) {
      const copy = Uint8Array.from(bytes);
      copy[i] = byte ^ (changes[i % changes.length] ?? 1);
      expect((await verifyReceipt(copy)).ok, `byte ${i}`).toBeUndefined();
    }
    for (let i = 0; i < bytes.length; i += 17) {
      const without = Uint8Array.from([...bytes.subarray(0, i), ...bytes.subarray(i + 1)]);
      expect((await verifyReceipt(without)).ok).toBeUndefined();
    }
    const longer = [toBytes('\n'), toBytes(' '), Uint8Array.of(0xef, 0xbb, 0xbf)];
    for (const more of longer) {
      expect((await verifyReceipt(Uint8Array.from([...bytes, ...more]))).ok).toBeUndefined();
      expect((await verifyReceipt(Uint8Array.from([...more, ...bytes]))).ok).toBeUndefined();
    }
  });

  it.each<[string, (honest: UnsignedReceipt) => Partial<UnsignedReceipt>]>([
    ['decision', () => ({ decision: 'approve' })],
    ['arguments', () => ({ args: { to: 'mallory' }, decision: 'approve' })],
    ['original arguments', () => ({ originalArgs: { to: 'mallory' }, args: { to: 'mallory' } })],
    ['reason', () => ({ reason: null })],
    ['tool', ({ facts }) => ({ facts: { ...facts, tool: 'harmless' } })],
    ['run', ({ facts }) => ({ facts: { ...facts, runId: 'other' } })],
    ['user', () => ({ user: generateSigner().did })],
    ['key of the user', () => ({ userKey: generateSigner().did })],
    ['time, after the decision expired', () => ({ decidedAt: '2026-03-01T12:01:00.000Z' })],
  ])(
    'rejects a denial whose %s the oracle itself has changed and signed again',
    async (_, change) => {
      const honest = await decide('deny');
      expect((await verifyReceipt(issue(honest))).ok).toMatchObject({ decision: 'deny' });
      expect((await verifyReceipt(issue({ ...honest, ...change(honest) }))).ok).toBeUndefined();
    },
  );

  it('rejects facts that the oracle changes together with the id', async () => {
    const honest = await decide();
    const facts = { ...honest.facts, tool: 'harmless' };
    const approval = await toApprovalId(facts);
    expect((await verifyReceipt(issue({ ...honest, facts, approval }))).error).toContain('signed');
  });

  it('rejects a receipt that another oracle has signed', async () => {
    const other = generateSigner();
    const bytes = toBytes(signReceipt(await decide(), other));
    expect((await verifyReceipt(bytes)).error).toContain('another oracle');
  });

  it.each<[string, Terms]>([
    ['another key', { signer: generateSigner() }],
    ['another audience', { audience: generateSigner().did }],
    ['an expiry before the decision', { expiration: seconds }],
    ['a start after the decision', { notBefore: seconds + 31 }],
    ['another ability', { can: 'oracle/rules' }],
    ['no caveats', { nb: {} }],
  ])('rejects an invocation with %s', async (_, terms) => {
    expect((await verifyReceipt(issue(await decide('approve', terms)))).ok).toBeUndefined();
  });

  it('rejects an invocation whose caveats are more than the decision', async () => {
    const honest = await decide();
    const { approval: id, decision, originalArgs, args, reason } = honest;
    const claims = await buildDecisionClaims({ id, decision, originalArgs, args, reason });
    const invocation = await mint(
      { id, decision, originalArgs },
      { nb: { ...claims, also: 'this' } },
    );
    expect((await verifyReceipt(issue({ ...honest, invocation }))).ok).toBeUndefined();
  });

  it('accepts the key of a DID that is not a did:key, as resolved at the time', async () => {
    const signer = alice.withDid('did:ixo:alice').ok ?? alice;
    const honest = await decide('approve', { signer });
    const bytes = issue({ ...honest, user: 'did:ixo:alice' });
    expect((await verifyReceipt(bytes)).ok).toMatchObject({
      user: 'did:ixo:alice',
      userKey: alice.did,
    });
  });

  it.each([
    ['not JSON', 'nonsense'],
    ['another object', '{}'],
    ['nothing', ''],
  ])('explains %s', async (_, text) => {
    expect((await verifyReceipt(toBytes(text))).error).toMatch(/^It is not/);
  });

  it('explains a receipt that was formatted', async () => {
    const receipt: Receipt = JSON.parse(signReceipt(await decide(), oracle));
    const { error } = await verifyReceipt(toBytes(JSON.stringify(receipt, null, 2)));
    expect(error).toContain('reformatted');
    expect((await verifyReceipt(toBytes(canonicalJson(receipt)))).ok).toBeDefined();
  });
});
