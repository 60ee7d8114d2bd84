import { describe, expect, it } from 'vitest';
import { readCompiledProtos } from '../../../demo-chain/src/chain-schema.js';
import { descriptorSet } from '../../test/schema/descriptor-set.js';
import type { Facts } from '../../test/schema/facts.js';
import { REQUEST_FACTS } from '../../test/schema/request-facts.js';
import { loadSchema, type SchemaOptions } from './schema.js';

const descriptors = readCompiledProtos();

function match(path: string, options: SchemaOptions = {}, method = 'GET') {
  const found = loadSchema(descriptors, options).match(method, path);
  if (found.kind !== 'route') return found;
  const { route, params, successor } = found;
  return {
    template: route.template,
    params: Object.fromEntries(params),
    ...(successor && { successor }),
  };
}

describe('a path', () => {
  it.each([
    ['/ixo/entity/params', '/ixo/entity/params', {}],
    ['/ixo/entity/did:ixo:entity:1', '/ixo/entity/{id}', { id: 'did:ixo:entity:1' }],
    ['/ixo/entity/a%2Fb', '/ixo/entity/{id}', { id: 'a/b' }],
    ['/ixo/entity/%C3%A9', '/ixo/entity/{id}', { id: 'é' }],
    ['/ixo/entity/x/metadata/', '/ixo/entity/{id}/metadata', { id: 'x' }],
    ['/ixo/entity/', '/ixo/entity', {}],
    ['/ixo/did/dids/did:x:zQ3', '/ixo/did/dids/{id}', { id: 'did:x:zQ3' }],
    [
      '/cosmos/base/tendermint/v1beta1/blocks/latest',
      '/cosmos/base/tendermint/v1beta1/blocks/latest',
      {},
    ],
    [
      '/cosmos/base/tendermint/v1beta1/blocks/7',
      '/cosmos/base/tendermint/v1beta1/blocks/{height}',
      { height: '7' },
    ],
  ])('%s', (path, template, params) => {
    expect(match(path)).toEqual({ template, params });
  });

  it('is the same for HEAD as for GET', () => {
    expect(match('/ixo/entity/params', {}, 'HEAD')).toEqual(match('/ixo/entity/params'));
  });

  it.each(['POST', 'OPTIONS', 'DELETE'])('of another method names those it has: %s', (method) => {
    expect(match('/ixo/entity/params', {}, method)).toEqual({
      kind: 'method_not_allowed',
      allow: ['GET', 'HEAD', 'OPTIONS'],
    });
  });

  it.each([
    ['/ixo/entitiy/x', ['/ixo/entity/{id}', '/ixo/entity/params', '/ixo/entity/{id}/metadata']],
    [
      '/wrong/claims/claims',
      ['/ixo/claims/claims', '/ixo/claims/claim/{id}', '/ixo/claims/params'],
    ],
    ['/ixo/claims/claim', ['/ixo/claims/claim/{id}', '/ixo/claims/claims', '/ixo/claims/params']],
    ['/favicon.ico', []],
    ['/', []],
  ])('returns the nearest routes for an unknown path: %s', (path, nearest) => {
    expect(match(path)).toEqual({ kind: 'not_found', nearest });
  });

  it.each(['/ixo/entity/%zz', '/ixo/entity/%', '/ixo/entity/%ff', 'ixo'])(
    '%s is malformed',
    (path) => {
      expect(match(path)).toMatchObject({ kind: 'malformed' });
    },
  );

  it('that is endless is answered as quickly as any', () => {
    const long = `/ixo/${'claims/'.repeat(20_000)}`;
    expect(match(long)).toMatchObject({ kind: 'not_found' });
    expect(match(`/ixo/entity/${'x'.repeat(1_000_000)}`)).toMatchObject({
      template: '/ixo/entity/{id}',
    });
  });
});

describe('a path as the node reads it', () => {
  const compat = { compat: 'node' } as const;

  it('decodes a path before splitting it, and keeps a trailing slash', () => {
    expect(match('/ixo/entity/a%2Fmetadata', compat)).toEqual({
      template: '/ixo/entity/{id}/metadata',
      params: { id: 'a' },
    });
    expect(match('/ixo/entity/params/', compat)).toMatchObject({ kind: 'not_found' });
  });
});

describe('the prefix', () => {
  it('is shown in place of the chain’s own, which stays accepted', () => {
    const entity = { template: '/impacts/entity/{id}', params: { id: 'x' } };
    expect(match('/impacts/entity/x', { prefix: 'impacts' })).toEqual(entity);
    expect(match('/ixo/entity/x', { prefix: 'impacts' })).toEqual(entity);
    expect(match('/impacts/entity/x')).toMatchObject({ kind: 'not_found' });
  });

  it('may have several segments', () => {
    expect(match('/chain/v8/token/params', { prefix: '/chain/v8/' })).toEqual({
      template: '/chain/v8/token/params',
      params: {},
    });
  });

  it('is only that of the chain’s own routes', () => {
    const node = '/cosmos/base/tendermint/v1beta1/node_info';
    expect(match(node, { prefix: 'impacts' })).toMatchObject({ template: node });
    expect(
      match('/impacts/base/tendermint/v1beta1/node_info', { prefix: 'impacts' }),
    ).toMatchObject({
      kind: 'not_found',
    });
  });

  it('is that of the nearest routes and the successors too', () => {
    expect(match('/impacts/entitiy/x', { prefix: 'impacts' })).toMatchObject({
      nearest: expect.arrayContaining(['/impacts/entity/{id}']),
    });
    expect(match('/impacts/claim/7', { prefix: 'impacts' })).toMatchObject({
      successor: '/impacts/claims/claim/7',
    });
  });
});

describe('a legacy path', () => {
  it.each([
    ['/ixo/claim', '/ixo/claims/claims'],
    ['/ixo/claim/7', '/ixo/claims/claim/7'],
    ['/ixo/collection', '/ixo/claims/collections'],
    ['/ixo/collection/1', '/ixo/claims/collection/1'],
    ['/ixo/dispute', '/ixo/claims/disputes'],
    ['/ixo/dispute/p', '/ixo/claims/dispute/p'],
    ['/ixo/token/ixo1', '/ixo/token/minter/ixo1'],
    ['/ixo/token/ixo1/ixo14', '/ixo/token/minter/ixo1/ixo14'],
    ['/ixo/token/config', '/ixo/token/params'],
    ['/ixo/did', '/ixo/did/dids'],
    ['/ixo/did/did:x:a%2Fb', '/ixo/did/dids/did:x:a%2Fb'],
    ['/ixo/allDidDocs', '/ixo/did/dids'],
    ['/did', '/ixo/did/dids'],
    ['/did/did:x:1', '/ixo/did/dids/did:x:1'],
    ['/allDidDocs', '/ixo/did/dids'],
    ['/ixo/bonds', '/ixo/bonds/bonds'],
    ['/ixo/bonds_detailed', '/ixo/bonds/bonds_detailed'],
    ['/ixo/entity/config', '/ixo/entity/params'],
  ])('%s leads to %s', (path, successor) => {
    const found = match(path);
    expect(found).toMatchObject({ successor });
    expect({ ...found, successor: undefined }).toEqual({
      ...match(successor),
      successor: undefined,
    });
  });

  it('prefers a declared path over a legacy one', () => {
    expect(match('/ixo/token/params')).toEqual({ template: '/ixo/token/params', params: {} });
    expect(match('/ixo/did/dids')).toEqual({ template: '/ixo/did/dids', params: {} });
    expect(match('/ixo/token/minter/m')).toEqual({
      template: '/ixo/token/minter/{minter}',
      params: { minter: 'm' },
    });
  });

  it('is unknown when it is switched off', () => {
    expect(match('/ixo/claim', { legacy: false })).toMatchObject({ kind: 'not_found' });
    expect(match('/ixo/entity/config', { legacy: false })).toEqual({
      template: '/ixo/entity/{id}',
      params: { id: 'config' },
    });
  });
});

describe('a schema', () => {
  it('loadSchema marks the routes that the node serves', () => {
    const schema = loadSchema(descriptors, { served: new Set(['ixo.entity.v1beta1.Query']) });
    expect(schema.findRoute('/ixo.entity.v1beta1.Query/Params')?.isServed).toBe(true);
    expect(schema.findRoute('/ixo.token.v1beta1.Query/Params')?.isServed).toBe(false);
    expect(loadSchema(descriptors).routes.every(({ isServed }) => isServed)).toBe(true);
  });

  it('has a fingerprint of descriptors, services and options', () => {
    const of = (options?: SchemaOptions) => loadSchema(descriptors, options).fingerprint;
    expect(of()).toBe(of({}));
    expect(of({ served: new Set(['a', 'b']) })).toBe(of({ served: new Set(['b', 'a']) }));
    const all = [of(), of({ prefix: 'x' }), of({ served: new Set() }), of({ compat: 'node' })];
    const other = loadSchema(descriptorSet(REQUEST_FACTS)).fingerprint;
    expect(new Set([...all, other]).size).toBe(5);
  });

  it('loadSchema omits and reports methods that it cannot serve', () => {
    const method = { request: 'odd.Empty', response: 'odd.Empty' };
    const facts: Facts = {
      messages: { 'odd.Empty': [] },
      services: {
        'odd.Query': {
          Good: { ...method, path: '/odd/good' },
          Streams: { ...method, path: '/odd/streams', streams: true },
          Verb: { ...method, path: '/odd/verb:custom' },
          Missing: { ...method, path: '/odd/{missing}' },
        },
      },
    };
    const schema = loadSchema(descriptorSet(facts));
    expect(schema.routes.map(({ template }) => template)).toEqual(['/odd/good']);
    expect(schema.notices).toEqual([
      'odd.Query/Streams is not served: it is a streaming method',
      'odd.Query/Verb is not served: The path /odd/verb:custom has an invalid part: verb:custom',
      'odd.Query/Missing is not served: missing: is in the path, but not in odd.Empty',
    ]);
  });

  it('loadSchema marks routes that write', () => {
    const method = { request: 'cosmos.tx.v1beta1.Empty', response: 'cosmos.tx.v1beta1.Empty' };
    const facts: Facts = {
      messages: { 'cosmos.tx.v1beta1.Empty': [] },
      services: {
        'cosmos.tx.v1beta1.Service': {
          BroadcastTx: { ...method, path: '/txs', verb: 'post', body: '*' },
          Simulate: { ...method, path: '/simulate', verb: 'post', body: '*' },
        },
        'cosmos.tx.v1beta1.Msg': { Send: { ...method, path: '/send', verb: 'post', body: '*' } },
      },
    };
    const { routes } = loadSchema(descriptorSet(facts));
    expect(routes.filter(({ isWrite }) => isWrite).map(({ template }) => template)).toEqual([
      '/txs',
      '/send',
    ]);
  });
});
