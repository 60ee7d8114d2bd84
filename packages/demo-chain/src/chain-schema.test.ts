import { getExtension, hasExtension } from '@bufbuild/protobuf';
import { expect, it } from 'vitest';
import { loadChainSchema } from './chain-schema.js';

const QUERY_SERVICES = [
  'ixo.bonds.v1beta1.Query',
  'ixo.claims.v1beta1.Query',
  'ixo.entity.v1beta1.Query',
  'ixo.epochs.v1beta1.Query',
  'ixo.iid.v1beta1.Query',
  'ixo.liquidstake.v1beta1.Query',
  'ixo.mint.v1beta1.Query',
  'ixo.names.v1beta1.Query',
  'ixo.smartaccount.v1beta1.Query',
  'ixo.token.v1beta1.Query',
];

it('the schema of the demo chain declares ten query services with 59 routes', () => {
  const { registry } = loadChainSchema();
  const http = registry.getExtension('google.api.http');
  if (!http) throw new Error('google.api.http is missing');
  const methods = QUERY_SERVICES.flatMap((name) => registry.getService(name)?.methods ?? []);
  expect(methods).toHaveLength(59);
  for (const { proto } of methods) {
    if (!proto.options) throw new Error(`${proto.name} has no options`);
    expect(hasExtension(proto.options, http)).toBe(true);
    expect(getExtension(proto.options, http)).toMatchObject({ pattern: { case: 'get' } });
  }
});
