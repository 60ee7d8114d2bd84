import { describe, expect, it } from 'vitest';
import {
  type Answer,
  hostileAnswers,
  json,
  serveDocuments,
  slowAnswers,
} from '../../test/support/document-server.js';
import { encodeBase58 } from '../codec/bytes.js';
import { createDidWebResolver, didWebUrl, toDidWeb } from './did-web.js';

const KEY = Uint8Array.from({ length: 32 }, (_, i) => i + 1);
const publicKeyMultibase = `z${encodeBase58(Uint8Array.from([0xed, 0x01, ...KEY]))}`;
const buildDocument = (did: string) => ({
  '@context': 'https://www.w3.org/ns/did/v1',
  id: did,
  verificationMethod: [{ id: `${did}#key`, type: 'Multikey', controller: did, publicKeyMultibase }],
  assertionMethod: [`${did}#key`],
});

/** The document with a note that makes its JSON this long. */
function pad(document: object, bytes: number): object {
  const { length } = JSON.stringify({ ...document, note: '' });
  return { ...document, note: 'x'.repeat(bytes - length) };
}

/** A resolver and a DID of the server, which is known only once it listens. */
const withServer = async (answer: (did: string) => Answer, path = '', limits = {}) => {
  const server = await serveDocuments((response, request) => answer(did)(response, request));
  const did = `did:web:127.0.0.1%3A${server.port}${path}`;
  const resolver = createDidWebResolver({ fetch, allowHttp: true, limits });
  return { did, resolver, requests: server.requests };
};

describe('didWebUrl', () => {
  it.each([
    ['did:web:example.org', 'https://example.org/.well-known/did.json'],
    ['did:web:example.org%3A8443', 'https://example.org:8443/.well-known/did.json'],
    ['did:web:example.org%3a8443', 'https://example.org:8443/.well-known/did.json'],
    ['did:web:example.org:user:alice', 'https://example.org/user/alice/did.json'],
    ['did:web:localhost%3A3000:svc', 'https://localhost:3000/svc/did.json'],
  ])('%s lies at %s', (did, url) => {
    expect(didWebUrl(did)).toEqual({ ok: url });
  });

  it.each([
    'did:web:',
    'did:web::a',
    'did:web:example.org:',
    'did:web:example.org::a',
    'did:web:example.org:..:secret',
    'did:web:example.org:%2e%2e:secret',
    'did:web:example.org:a%2Fb',
    'did:web:example.org:a%5Cb',
    'did:web:example.org%3A99999',
    'did:web:example.org%3Aport',
    'did:web:user%40example.org',
    'did:web:example.org%2Fpath',
    'did:web:example.org/path',
    'did:web:example.org#key',
    'did:web:example.org?x',
    'did:web:0x7f.1',
    'did:web:2130706433',
    'did:web:127.1',
    'did:key:z6Mk',
  ])('%s is refused', (did) => {
    expect(didWebUrl(did).error?.code).toBe('did_invalid');
  });
});

describe('createDidWebResolver', () => {
  it('reads the document of the host', async () => {
    const { did, resolver, requests } = await withServer((did) => json(buildDocument(did)));
    expect((await resolver.resolve(did)).ok).toEqual([KEY]);
    expect(requests).toEqual(['GET /.well-known/did.json']);
  });

  it('reads the document of a path', async () => {
    const { did, resolver, requests } = await withServer((did) => json(buildDocument(did)), ':a:b');
    expect((await resolver.resolve(did)).ok).toEqual([KEY]);
    expect(requests).toEqual(['GET /a/b/did.json']);
  });

  it.each([404, 410])('finds nothing at a %i', async (status) => {
    const { did, resolver } = await withServer(() => json({}, status));
    expect((await resolver.resolve(did)).error?.code).toBe('did_not_found');
  });

  it('refuses the document of another DID', async () => {
    const { did, resolver } = await withServer(() => json(buildDocument('did:web:example.org')));
    expect((await resolver.resolve(did)).error?.code).toBe('did_invalid');
  });

  it('reads a document as large as the limit, and no larger one', async () => {
    const maxBytes = 2_000;
    const resolve = async (bytes: number) => {
      const answer = (did: string) => json(pad(buildDocument(did), bytes));
      const { did, resolver } = await withServer(answer, '', { maxBytes });
      return resolver.resolve(did);
    };
    expect((await resolve(maxBytes)).ok).toEqual([KEY]);
    expect((await resolve(maxBytes + 1)).ok).toBeUndefined();
  });

  it('refuses a document that is not UTF-8', async () => {
    const { did, resolver } = await withServer((did) => (response) => {
      const document = JSON.stringify({ ...buildDocument(did), note: '\u00ff' });
      response.end(Buffer.from(document, 'latin1'));
    });
    expect((await resolver.resolve(did)).error?.code).toBe('did_invalid');
  });

  it('counts no key without a relationship', async () => {
    const { did, resolver } = await withServer((did) =>
      json({ ...buildDocument(did), assertionMethod: undefined }),
    );
    expect((await resolver.resolve(did)).error?.code).toBe('did_invalid');
  });

  it.each(hostileAnswers)('withstands %s', async (_, answer, code) => {
    const { did, resolver } = await withServer(() => answer);
    expect((await resolver.resolve(did)).error?.code).toBe(code);
  });

  it.each(slowAnswers)('times out on %s', async (_, answer) => {
    const { did, resolver } = await withServer(() => answer, '', { timeoutMs: 50 });
    expect((await resolver.resolve(did)).error?.code).toBe('did_unavailable');
  });

  it('asks once for callers at the same time', async () => {
    const { did, resolver, requests } = await withServer((did) => json(buildDocument(did)));
    await Promise.all([resolver.resolve(did), resolver.resolve(did)]);
    expect(requests).toHaveLength(1);
  });

  it.each([
    ['loopback without allowHttp', 'did:web:127.0.0.1%3A1', undefined, 'https://127.0.0.1:1/'],
    ['loopback with allowHttp', 'did:web:127.0.0.1%3A1', true, 'http://127.0.0.1:1/'],
    ['other hosts with allowHttp', 'did:web:example.org', true, 'https://example.org/'],
  ])('chooses the scheme for %s', async (_, did, allowHttp, url) => {
    const asked: string[] = [];
    const refusing = async (url: string) => {
      asked.push(url);
      throw new Error('refused');
    };
    await createDidWebResolver({ fetch: refusing, allowHttp }).resolve(did);
    expect(asked).toEqual([`${url}.well-known/did.json`]);
  });

  it('sends no request for anything but a did:web', async () => {
    const resolver = createDidWebResolver({ fetch });
    expect((await resolver.resolve('did:web:0x7f.1')).error?.code).toBe('did_invalid');
  });
});

describe('toDidWeb', () => {
  it.each([
    ['https://example.org', 'did:web:example.org'],
    ['https://example.org/', 'did:web:example.org'],
    ['https://example.org:8443/svc/a/', 'did:web:example.org%3A8443:svc:a'],
    ['http://localhost:3000', 'did:web:localhost%3A3000'],
  ])('%s proves to be %s', (address, did) => {
    expect(toDidWeb(address)).toEqual({ ok: did });
  });

  it.each([
    'example.org',
    'ftp://example.org',
    'httpsx://example.org',
    'https://user@example.org',
    'https://example.org/?a=b',
  ])('refuses %s', (address) => {
    const detail = 'a service address is http(s)://host/path';
    expect(toDidWeb(address)).toEqual({ error: { code: 'did_invalid', detail } });
  });
});
