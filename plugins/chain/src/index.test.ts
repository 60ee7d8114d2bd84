import { expect, it } from 'vitest';
import { QueryPath } from './index.js';

it.each([
  '/ixo/entity',
  '/ixo/entity/did:ixo:entity:1a2b',
  '/ixo/did/dids/did%3Aixo%3Aentity%3A1a2b',
  '/ibc/apps/transfer/v1/denom_traces/transfer%2Fchannel-0',
  '/ixo/names/v1beta1/names/demo/a..b',
])('takes %s', (path) => {
  expect(QueryPath.parse(path)).toBe(path);
});

it.each([
  '',
  'ixo/entity',
  'http://169.254.169.254/latest/meta-data',
  '//evil.example/ixo',
  '/\\evil.example',
  '/ixo/../../admin',
  '/ixo/%2e%2E/admin',
  '/ixo/./entity',
  '/..',
  '/ixo/entity?watch',
  '/ixo/entity#top',
  '/ixo/ent ity',
  '/ixo/100%',
  '/ixo\r\nHost: evil.example',
  `/${'a'.repeat(1000)}`,
])('refuses %j', (path) => {
  expect(QueryPath.safeParse(path).success).toBe(false);
});
