import { describe, expect, it } from 'vitest';
import { createDidKeyResolver, didFromPublicKey } from './did-key.js';
import { createDidResolver, type DidResolver } from './did-resolver.js';

const KEY = new Uint8Array(32).fill(9);
const found: DidResolver = { resolve: async () => ({ ok: [KEY] }) };
const key = createDidKeyResolver();

describe('createDidResolver', () => {
  it('sends each DID to its method', async () => {
    const resolver = createDidResolver({ methods: { key, ixo: found, web: found } });
    for (const did of [didFromPublicKey(KEY), 'did:ixo:a', 'did:web:example.org']) {
      expect((await resolver.resolve(did)).ok).toEqual([KEY]);
    }
  });

  it.each([
    ['did:ixo:a', 'did:ixo needs CHAIN_REST_URL or BLOCKSYNC_GRAPHQL_URL'],
    ['did:web:example.org', 'did:web is turned off'],
    ['did:plc:a', 'did:plc is none of did:key, did:ixo, did:web'],
    ['did:constructor:a', 'did:constructor is none of did:key, did:ixo, did:web'],
  ])('says why %s is unsupported', async (did, detail) => {
    const { error } = await createDidResolver({ methods: { key } }).resolve(did);
    expect(error).toEqual({ code: 'did_unsupported', detail });
  });

  it.each([
    '',
    'did',
    'did:',
    'did:ixo',
    'did:ixo:',
    'did:ixo:a:',
    'did:IXO:a',
    'DID:ixo:a',
    'did:ixo:a b',
    'did:ixo:a/b',
    'did:ixo:a?b',
    'did:ixo:a#b',
    'did:ixo:a%',
    'did:ixo:a%zz',
    'did:ixo:ä',
    'did:ixo:a\n',
    `did:ixo:${'a'.repeat(505)}`,
    undefined,
    null,
    7,
    {},
  ])('refuses %j as no DID', async (did) => {
    const resolver = createDidResolver({ methods: { key, ixo: found, web: found } });
    expect((await resolver.resolve(did as string)).error?.code).toBe('did_invalid');
  });

  it('takes a DID of 512 characters', async () => {
    const resolver = createDidResolver({ methods: { key, ixo: found } });
    expect((await resolver.resolve(`did:ixo:${'a'.repeat(504)}`)).ok).toEqual([KEY]);
  });
});

describe('needsLookup', () => {
  const lookups = (needsLookup?: (did: string) => boolean) => {
    const source: DidResolver = { ...found, ...(needsLookup && { needsLookup }) };
    const resolver = createDidResolver({ methods: { key, ixo: source, web: source } });
    const dids = [didFromPublicKey(KEY), 'did:ixo:a', 'did:web:example.org', 'did:plc:a', 'no DID'];
    return dids.filter((did) => resolver.needsLookup?.(did));
  };

  it('is assumed for methods that use the network, unless their resolver knows better', () => {
    expect(lookups()).toEqual(['did:ixo:a', 'did:web:example.org']);
    expect(lookups((did) => did === 'did:ixo:a')).toEqual(['did:ixo:a']);
  });

  it('is false for a method that is not configured', () => {
    const resolver = createDidResolver({ methods: { key } });
    expect(resolver.needsLookup?.('did:ixo:a')).toBe(false);
    expect(resolver.needsLookup?.('did:web:example.org')).toBe(false);
  });
});
