import { describe, expect, it } from 'vitest';
import {
  type Answer,
  hostileAnswers,
  json,
  serveDocuments,
  slowAnswers,
} from '../../test/support/document-server.js';
import { createDidIxoResolver } from './did-ixo.js';

const DID = 'did:ixo:ixo1abc';
const KEY = Uint8Array.from({ length: 32 }, (_, i) => i + 1);
const publicKeyMultibase = `F${Buffer.from(KEY).toString('hex')}`;
const type = 'Ed25519VerificationKey2018';
const methods = [{ id: `${DID}#k`, type, controller: DID, publicKeyMultibase }];
const iid = {
  id: DID,
  verificationMethod: methods,
  authentication: [`${DID}#k`],
  assertionMethod: [],
  keyAgreement: [],
  capabilityInvocation: [],
  capabilityDelegation: [],
  metadata: { versionId: '1', deactivated: false },
};
const chainAnswer = (document: unknown) => json({ iidDocument: document });
const indexAnswer = (...nodes: unknown[]) => json({ data: { iids: { nodes } } });

const withChain = async (answer: Answer, limits = {}) => {
  const { url, requests } = await serveDocuments(answer);
  return { requests, resolver: createDidIxoResolver({ chainRestUrl: `${url}/`, fetch, limits }) };
};
const withIndex = async (answer: Answer, limits = {}) => {
  const { url, requests } = await serveDocuments(answer);
  const blocksyncUrl = `${url}/graphql`;
  return { requests, resolver: createDidIxoResolver({ blocksyncUrl, fetch, limits }) };
};

describe('did:ixo from the chain', () => {
  it('asks the REST path of the document', async () => {
    const { resolver, requests } = await withChain(chainAnswer(iid));
    expect((await resolver.resolve(DID)).ok).toEqual([KEY]);
    expect(requests).toEqual([`GET /ixo/did/dids/${DID}`]);
  });

  it('reads protobuf names', async () => {
    const { id, verificationMethod, authentication } = iid;
    const document = { id, verification_method: verificationMethod, authentication };
    const { resolver } = await withChain(json({ iid_document: document }));
    expect((await resolver.resolve(DID)).ok).toEqual([KEY]);
  });

  it.each([
    ['404', json({ code: 5, message: 'not found', details: [] }, 404)],
    ['its own error in a 500', json({ code: 2, message: 'did document not found' }, 500)],
    ['the gRPC code in a 400', json({ code: 5, message: 'unknown' }, 400)],
  ])('finds nothing at a %s', async (_, answer) => {
    const { resolver } = await withChain(answer);
    expect((await resolver.resolve(DID)).error?.code).toBe('did_not_found');
  });

  it.each(hostileAnswers)('withstands %s', async (_, answer, code) => {
    const { resolver } = await withChain(answer);
    expect((await resolver.resolve(DID)).error?.code).toBe(code);
  });

  it.each(slowAnswers)('times out on %s', async (_, answer) => {
    const { resolver } = await withChain(answer, { timeoutMs: 50 });
    expect((await resolver.resolve(DID)).error?.code).toBe('did_unavailable');
  });

  it.each([
    ['another id', { ...iid, id: 'did:ixo:other' }, 'did_invalid'],
    ['a deactivated document', { ...iid, metadata: { deactivated: true } }, 'did_deactivated'],
    ['no relationships', { id: DID, verificationMethod: methods }, 'did_invalid'],
    [
      'secp256k1 only',
      {
        ...iid,
        verificationMethod: [
          {
            ...methods[0],
            type: 'EcdsaSecp256k1VerificationKey2019',
            publicKeyMultibase: `F02${'11'.repeat(32)}`,
          },
        ],
      },
      'did_invalid',
    ],
  ])('refuses %s', async (_, document, code) => {
    const { resolver } = await withChain(chainAnswer(document));
    expect((await resolver.resolve(DID)).error?.code).toBe(code);
  });

  it('follows no redirect', async () => {
    const { resolver, requests } = await withChain((response) =>
      response.writeHead(307, { location: '/elsewhere' }).end(),
    );
    expect((await resolver.resolve(DID)).error?.code).toBe('did_unavailable');
    expect(requests).toHaveLength(1);
  });

  it('asks once for callers at the same time, and again afterwards', async () => {
    const { resolver, requests } = await withChain(chainAnswer(iid));
    await Promise.all([resolver.resolve(DID), resolver.resolve(DID), resolver.resolve(DID)]);
    expect(requests).toHaveLength(1);
    await resolver.resolve(DID);
    expect(requests).toHaveLength(2);
  });

  it.each([
    'did:ixo:',
    'did:ixo:a/../../x',
    'did:ixo:a?height=1',
    'did:ixo:a#key',
    'did:ixo:a%2F..',
    'did:web:example.org',
    'ixo',
    `did:ixo:${'a'.repeat(600)}`,
  ])('asks nothing for %s', async (did) => {
    const { resolver, requests } = await withChain(chainAnswer(iid));
    expect((await resolver.resolve(did)).error?.code).toBe('did_invalid');
    expect(requests).toEqual([]);
  });
});

describe('did:ixo from Blocksync', () => {
  it('asks GraphQL with the DID as a variable', async () => {
    const { resolver, requests } = await withIndex(indexAnswer(iid));
    expect((await resolver.resolve(DID)).ok).toEqual([KEY]);
    const [request = ''] = requests;
    expect(request).toContain(
      'POST /graphql {"query":"query($id:String!){iids(filter:{id:{equalTo:$id}})',
    );
    expect(request).toContain(`"variables":{"id":"${DID}"}`);
  });

  it('counts every Ed25519 method when only methods are given', async () => {
    const { resolver } = await withIndex(indexAnswer({ id: DID, verificationMethod: methods }));
    expect((await resolver.resolve(DID)).ok).toEqual([KEY]);
  });

  it.each([
    ['no node', indexAnswer(), 'did_not_found'],
    ['two nodes', indexAnswer(iid, iid), 'did_invalid'],
    ['another id', indexAnswer({ ...iid, id: 'did:ixo:other' }), 'did_invalid'],
    [
      'a deactivated one',
      indexAnswer({ ...iid, metadata: { deactivated: true } }),
      'did_deactivated',
    ],
    ['relationships without the key', indexAnswer({ ...iid, authentication: [] }), 'did_invalid'],
    ['GraphQL errors', json({ errors: [{ message: 'no' }], data: null }), 'did_unavailable'],
    ['nodes of another shape', json({ data: { iids: { nodes: {} } } }), 'did_invalid'],
    ['a 404', json({}, 404), 'did_unavailable'],
  ])('answers %s with its error', async (_, answer, code) => {
    const { resolver } = await withIndex(answer);
    expect((await resolver.resolve(DID)).error?.code).toBe(code);
  });

  it.each(hostileAnswers)('withstands %s', async (_, answer, code) => {
    const { resolver } = await withIndex(answer);
    expect((await resolver.resolve(DID)).error?.code).toBe(code);
  });

  it.each(slowAnswers)('times out on %s', async (_, answer) => {
    const { resolver } = await withIndex(answer, { timeoutMs: 50 });
    expect((await resolver.resolve(DID)).error?.code).toBe('did_unavailable');
  });
});

describe('did:ixo from both', () => {
  const withBoth = async (chain: Answer, index: Answer) => {
    const [first, second] = [await serveDocuments(chain), await serveDocuments(index)];
    const urls = { chainRestUrl: first.url, blocksyncUrl: second.url };
    return { resolver: createDidIxoResolver({ ...urls, fetch }), first, second };
  };

  it('asks Blocksync when the chain is unavailable', async () => {
    const { resolver, first } = await withBoth(json({}, 503), indexAnswer(iid));
    expect((await resolver.resolve(DID)).ok).toEqual([KEY]);
    expect(first.requests).toHaveLength(1);
  });

  it.each([
    ['keys', chainAnswer(iid)],
    ['not found', json({ code: 5 }, 404)],
    ['deactivated', chainAnswer({ ...iid, metadata: { deactivated: true } })],
    ['a malformed document', chainAnswer({})],
  ])('takes the word of the chain: %s', async (_, chain) => {
    const { resolver, second } = await withBoth(chain, indexAnswer(iid));
    await resolver.resolve(DID);
    expect(second.requests).toEqual([]);
  });

  it('names both when neither answers, without their paths', async () => {
    const { resolver, first, second } = await withBoth(json({}, 503), json({}, 502));
    const { error } = await resolver.resolve(DID);
    expect(error?.code).toBe('did_unavailable');
    expect(error?.detail).toBe(
      `127.0.0.1:${first.port} answered 503; 127.0.0.1:${second.port} answered 502`,
    );
  });
});

describe('did:ixo without a usable source', () => {
  it('says what to configure', async () => {
    const { error } = await createDidIxoResolver({ fetch }).resolve(DID);
    expect(error?.code).toBe('did_unsupported');
    expect(error?.detail).toBe('did:ixo needs CHAIN_REST_URL or BLOCKSYNC_GRAPHQL_URL');
  });

  it('is unavailable when the URL is invalid', async () => {
    const resolver = createDidIxoResolver({ chainRestUrl: 'not a url', fetch });
    expect((await resolver.resolve(DID)).error?.code).toBe('did_unavailable');
  });
});
