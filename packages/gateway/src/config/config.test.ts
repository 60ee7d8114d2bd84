import { createHash } from 'node:crypto';
import { expect, it } from 'vitest';
import { ConfigError, loadConfig } from './config.js';

const DIGEST = createHash('sha256').update('key').digest('hex');

const NODES = { GATEWAY_UPSTREAMS: 'grpc://a:9090' };

/** The message for an invalid environment. */
function readError(env: Record<string, string>): string {
  try {
    loadConfig({ ...NODES, ...env });
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  return '';
}

it('loadConfig has a default for everything but the nodes', () => {
  const config = loadConfig(NODES);
  expect(config).toMatchObject({
    host: '127.0.0.1',
    port: 3001,
    compat: undefined,
    corsOrigins: [],
    nodes: { timeoutMs: 15_000, maxReplyBytes: 16 * 1024 * 1024 },
    schema: { prefix: 'ixo', legacy: true },
    gating: { auth: 'none', apiKeys: [], ucanIssuers: ['*'], perMinute: undefined },
    cache: { maxBytes: 64 * 1024 * 1024 },
  });
  expect(Object.isFrozen(config)).toBe(true);
});

it('loadConfig treats an empty variable as unset', () => {
  const env = { ...NODES, GATEWAY_PORT: ' ', GATEWAY_COMPAT: '' };
  expect(loadConfig(env)).toEqual(loadConfig(NODES));
});

it('loadConfig reads the addresses of nodes and their first heights', () => {
  const { addresses } = loadConfig({
    GATEWAY_UPSTREAMS: 'grpc://a:9090?from=1, rpc+https://user:pw@b/path?key=1,grpcs://[::1]:443',
  }).nodes;
  expect(addresses.map(({ url, from }) => [url.href, from])).toEqual([
    ['grpc://a:9090', 1],
    ['rpc+https://user:pw@b/path?key=1', undefined],
    ['grpcs://[::1]:443', undefined],
  ]);
});

it.each([
  ['http://a:9090', 'must start with one of'],
  ['grpc://a', 'needs the port'],
  ['grpc://a:9090?from=now', '?from='],
  ['a:9090', 'must start with one of'],
  ['//a', 'must be URLs'],
  ['rpc+http://a/#b', 'must have no #'],
  ['grpc://a:9090?rpc=http%3A%2F%2Fb%2F%23c', 'must have no #'],
  ['grpc://me:50%more@a:9090', 'written as %25'],
])('refuses the address %s', (url, reason) => {
  expect(readError({ GATEWAY_UPSTREAMS: url })).toContain(reason);
});

it('never repeats an address, which may hold a password', () => {
  expect(readError({ GATEWAY_UPSTREAMS: 'http://me:hidden@a:1' })).not.toContain('hidden');
});

it('reads API keys with their names, limits and scopes', () => {
  const keys = `${DIGEST};name=mobile;limit=60;scope=/ixo/entity/*|/ixo/claims/params,${DIGEST}`;
  const { apiKeys } = loadConfig({ ...NODES, GATEWAY_API_KEYS: keys }).gating;
  expect(apiKeys).toMatchObject([
    { name: 'mobile', limit: 60, scopes: ['/ixo/entity/*', '/ixo/claims/params'] },
    { name: DIGEST.slice(0, 8), limit: undefined, scopes: undefined },
  ]);
  expect(apiKeys[0]?.sha256.toString('hex')).toBe(DIGEST);
});

it.each([
  ['key', '64 hex digits'],
  [`${DIGEST};limit=none`, 'limit'],
  [`${DIGEST};limit=0`, 'limit'],
  [`${DIGEST};scope=ixo`, 'scope'],
  [`${DIGEST};name=a b`, 'name'],
  [`${DIGEST};flavor=red`, ';flavor='],
])('refuses the API key %s', (key, reason) => {
  expect(readError({ GATEWAY_API_KEYS: key })).toContain(reason);
});

it('loadConfig reports all errors at once, each with a remedy', () => {
  const message = readError({
    GATEWAY_UPSTREAMS: '',
    GATEWAY_PORT: '70000',
    GATEWAY_COMPAT: 'yes',
    GATEWAY_AUTH: 'api-key',
    GATEWAY_DESCRIPTORS: '/nowhere/descriptors.bin',
    GATEWAY_CACHE_BYPASS_SECRET: 'short',
  });
  for (const variable of [
    'GATEWAY_UPSTREAMS',
    'GATEWAY_PORT',
    'GATEWAY_COMPAT',
    'GATEWAY_API_KEYS',
    'GATEWAY_DESCRIPTORS',
    'GATEWAY_CACHE_BYPASS_SECRET',
  ]) {
    expect(message).toContain(`${variable} (gateway)`);
  }
  expect(message).toMatch(/^6 variables are wrong in the environment:/);
  expect(message.match(/→/g)).toHaveLength(6);
});

it.each([
  ['GATEWAY_PREFIX', 'a/b'],
  ['GATEWAY_CORS_ORIGIN', 'https://app.example/path'],
  ['GATEWAY_UCAN_ISSUERS', 'alice'],
  ['GATEWAY_DID', 'gateway'],
  ['GATEWAY_CACHE_SIZE', 'much'],
  ['GATEWAY_TIMEOUT_SECONDS', '0'],
  ['GATEWAY_TIMEOUT_SECONDS', '2592000'],
  ['GATEWAY_WATCH_STALL_SECONDS', '2592000'],
  ['GATEWAY_REQUEST_TIMEOUT_SECONDS', '2592000'],
  ['GATEWAY_BLOCK_POLL_MS', '1'],
])('refuses %s=%s', (name, value) => {
  expect(readError({ [name]: value })).toContain(name);
});
