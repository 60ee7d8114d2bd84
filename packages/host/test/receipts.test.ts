import { createHash, createPublicKey, verify } from 'node:crypto';
import { defineTool } from '@sibyl/plugin-kit';
import { buildDecisionClaims, type JsonObject } from '@sibyl/protocol';
import { mintDelegation, verifyReceipt } from '@sibyl/ucan';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { join, openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

// Verifies receipts with what docs/approvals.md says, and with nothing of the product.

type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json };

const toCanonicalJson = (value: Json): string => {
  if (Array.isArray(value)) return `[${value.map(toCanonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const fields = value as { readonly [name: string]: Json };
  const names = Object.keys(fields).sort();
  const pairs = names.map(
    (name) => `${JSON.stringify(name)}:${toCanonicalJson(fields[name] ?? null)}`,
  );
  return `{${pairs.join(',')}}`;
};

const sha256 = (data: string | Uint8Array) => createHash('sha256').update(data).digest();
const hash = (value: Json) => sha256(toCanonicalJson(value)).toString('hex');

const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

/** The key in a did:key of Ed25519. */
function readDidKey(did: string) {
  let number = 0n;
  for (const letter of did.slice('did:key:z'.length))
    number = number * 58n + BigInt(BASE58.indexOf(letter));
  const bytes = Buffer.from(number.toString(16).padStart(68, '0'), 'hex');
  expect([bytes.length, bytes[0], bytes[1]]).toEqual([34, 0xed, 0x01]);
  const x = bytes.subarray(2).toString('base64url');
  return createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
}

type Cbor = null | boolean | number | string | Buffer | Cbor[] | { [name: string]: Cbor };

/** Reads the types of CBOR that occur in a UCAN; a link is the bytes of its CID. */
class CborReader {
  private at = 0;

  constructor(private readonly bytes: Buffer) {}

  read(): Cbor {
    const [head = 0] = this.take(1);
    if (head === 0xf6) return null;
    const length = this.readNumber(head & 31);
    const repeat = <T>(one: () => T) => Array.from({ length }, one);
    const readers = new Map<number, () => Cbor>([
      [0, () => length],
      [2, () => this.take(length)],
      [3, () => this.take(length).toString()],
      [4, () => repeat(() => this.read())],
      [5, () => Object.fromEntries(repeat(() => [String(this.read()), this.read()]))],
      [6, () => (this.read() as Buffer).subarray(1)],
    ]);
    return readers.get(head >> 5)?.() ?? null;
  }

  private take(length: number): Buffer {
    this.at += length;
    return this.bytes.subarray(this.at - length, this.at);
  }

  private readNumber(info: number): number {
    if (info < 24) return info;
    return this.take(2 ** (info - 24)).reduce((sum, byte) => sum * 256 + byte, 0);
  }
}

/** The UCAN in a token: the block with a signature. */
function readUcan(token: string) {
  const car = Buffer.from(token, 'base64');
  const blocks: Buffer[] = [];
  for (let at = 0; at < car.length; ) {
    let [length, shift, byte] = [0, 0, 0x80];
    for (; byte & 0x80; shift += 7) {
      byte = car[at++] ?? 0;
      length |= (byte & 0x7f) << shift;
    }
    blocks.push(car.subarray(at, at + length));
    at += length;
  }
  const [, ...sections] = blocks;
  expect(sections).toHaveLength(2);
  for (const section of sections)
    expect(section.subarray(4, 36)).toEqual(sha256(section.subarray(36)));
  const values = sections.map((section) => new CborReader(section.subarray(36)).read());
  return values.find((value) => value && Object.hasOwn(value as object, 's')) as {
    iss: Buffer;
    aud: Buffer;
    s: Buffer;
    att: Json;
    exp: number;
    nnc?: string;
    prf: Json;
  };
}

/** The DID in a UCAN. */
const readPrincipal = (bytes: Buffer, key: string): string =>
  bytes[0] === 0x9d ? `did:${bytes.subarray(2)}` : key;

const base64url = (text: string) => Buffer.from(text).toString('base64url');

/** Throws unless the receipt is valid. */
function verifyIndependently(text: string) {
  const receipt = JSON.parse(text);
  expect(toCanonicalJson(receipt)).toBe(text);
  const { signature, ...content } = receipt;
  const signed = Buffer.from(`sibyl receipt 1\n${toCanonicalJson(content)}`);
  const oracleKey = readDidKey(receipt.oracleKey);
  expect(verify(null, signed, oracleKey, Buffer.from(signature, 'base64'))).toBe(true);
  expect(hash(receipt.facts)).toBe(receipt.approval);
  expect(hash(receipt.originalArgs)).toBe(receipt.facts.argsHash);

  const { iss, aud, s, ...rest } = readUcan(receipt.invocation);
  const [issuer, audience] = [
    readPrincipal(iss, receipt.userKey),
    readPrincipal(aud, receipt.oracleKey),
  ];
  expect([issuer, audience]).toEqual([receipt.user, receipt.oracle]);
  const { att, exp, nnc, prf } = rest;
  const payload = { iss: issuer, aud: audience, att, exp, prf, ...(nnc && { nnc }) };
  const header = base64url('{"alg":"EdDSA","typ":"JWT","ucv":"0.9.1"}');
  const claim = Buffer.from(`${header}.${base64url(toCanonicalJson(payload))}`);
  expect(verify(null, claim, readDidKey(receipt.userKey), s.subarray(4))).toBe(true);
  expect(Date.parse(receipt.decidedAt) / 1000).toBeLessThan(exp);
  expect(prf).toEqual([]);
  expect(att).toEqual([
    {
      can: 'oracle/approve',
      with: `ixo:oracle:${receipt.oracle}`,
      nb: {
        approval: receipt.approval,
        decision: receipt.decision,
        argsHash: hash(receipt.args),
        originalArgsHash: hash(receipt.originalArgs),
        reasonHash: hash(receipt.reason),
      },
    },
  ]);
  return receipt;
}

const transfer = defineTool({
  name: 'transfer',
  description: 'Transfers.',
  inputSchema: z.looseObject({}),
  needsApproval: true,
  run: ({ fails }) => {
    if (fails) throw new Error('The bank is closed');
    return 'transferred';
  },
});
const bank = testPlugin('bank', { getTools: () => [transfer] });
const test = useControlledHost({ plugins: [bank] });

interface Decided {
  readonly decision: 'approve' | 'deny';
  readonly args?: JsonObject;
  readonly reason?: string;
}

/** A signed decision about a call with these arguments. */
async function decide(user: TestUser, input: JsonObject, decided: Decided) {
  const sessionId = await openSession(user);
  const live = await stream(user, sessionId, { message: 'Transfer' });
  (await test.model.next()).call({ name: 'transfer', input });
  await live.toEnd();
  const { approvals } = (await user.request('GET', `/approvals?sessionId=${sessionId}`)).body;
  const [{ id, args: originalArgs }] = approvals;
  const nb = (await buildDecisionClaims({ id, originalArgs, ...decided })) as never;
  const capability = { can: 'oracle/approve', with: `ixo:oracle:${test.host.did}`, nb };
  const { ok: minted } = mintDelegation({
    signer: user.signer,
    audience: test.host.did,
    capabilities: [capability],
    expiration: Math.floor(Date.now() / 1000) + 120,
    nonce: 'once',
  });
  const body = { ...decided, invocation: minted?.token };
  const { status, body: reply } = await user.request('POST', `/approvals/${id}`, { body });
  expect([status, reply]).toMatchObject([200, { id }]);
  const rest = await join(user, reply.runId, 0);
  const readReceipt = async () => {
    const { headers } = user;
    const receipt = await fetch(`${test.host.url}/approvals/${id}/receipt`, { headers });
    expect(receipt.status).toBe(200);
    return receipt.text();
  };
  return { sessionId, rest, readReceipt };
}

const ODD: JsonObject = {
  '\u{1f600}': 'emoji before \ufb33 in UTF-16',
  '\ufb33': [1e21, 1e-7, 0.1, -5, 100],
  10: 'ten',
  9: 'nine',
  '': '\u0007 "quoted" é é',
  nested: { b: null, a: [true, false, {}] },
};

it('Receipts can be verified with what the documentation says', async () => {
  const user = new TestUser(test.host);
  const cases: [JsonObject, Decided][] = [
    [ODD, { decision: 'approve', reason: 'as discussed “ß”\n' }],
    [{ amount: 1 }, { decision: 'approve', args: ODD }],
    [{ fails: true }, { decision: 'approve' }],
    [ODD, { decision: 'deny', reason: 'no' }],
  ];
  for (const [input, decided] of cases) {
    const { rest, readReceipt } = await decide(user, input, decided);
    (await test.model.next()).answer('Done');
    await rest.toEnd();
    const text = await readReceipt();
    expect(verifyIndependently(text)).toMatchObject({ user: user.did, originalArgs: input });
    expect(await verifyReceipt(Buffer.from(text))).toMatchObject({ ok: { user: user.did } });
  }
});

it('Receipts stay the same when their turn is aborted or fails and their session is deleted', async () => {
  const user = new TestUser(test.host);
  const aborted = await decide(user, { amount: 1 }, { decision: 'approve' });
  await test.model.next();
  const body = { sessionId: aborted.sessionId };
  expect((await user.request('POST', '/messages/abort', { body })).body).toEqual({ success: true });
  await aborted.rest.toEnd();
  const failed = await decide(user, { amount: 2 }, { decision: 'approve' });
  (await test.model.next()).fail({
    message: 'out of order',
    code: 'invalid',
    type: 'invalid_request_error',
  });
  await failed.rest.toEnd();
  for (const { sessionId, readReceipt } of [aborted, failed]) {
    const text = await readReceipt();
    verifyIndependently(text);
    expect((await user.request('DELETE', `/sessions/${sessionId}`)).status).toBe(200);
    expect(await readReceipt()).toBe(text);
  }
});
