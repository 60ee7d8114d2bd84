import { expect, it } from 'vitest';
import { ConfigError, loadConfig } from './config.js';

it('needs nothing', () => {
  expect(loadConfig({})).toMatchObject({
    host: '127.0.0.1',
    port: 3000,
    dataDir: './data',
    databaseUrl: undefined,
    bodyLimit: 1024 * 1024,
    corsOrigins: ['*'],
    auth: { maxTtlSeconds: 900, allowDelegationLogin: true },
  });
});

it('is frozen through and through', () => {
  const config = loadConfig({});
  expect(Object.isFrozen(config)).toBe(true);
  for (const part of Object.values(config))
    if (typeof part === 'object') expect(Object.isFrozen(part)).toBe(true);
});

it('counts an empty variable as unset', () => {
  expect(loadConfig({ PORT: '', DATABASE_URL: '  ' })).toMatchObject({ port: 3000 });
});

it('reads sizes, lists, flags and hops', () => {
  const config = loadConfig({
    BODY_LIMIT: '512KB',
    CORS_ORIGIN: 'https://a.example, https://b.example',
    UCAN_ALLOW_DELEGATION_LOGIN: 'false',
    TRUST_PROXY: '2',
  });
  expect(config.bodyLimit).toBe(512 * 1024);
  expect(config.corsOrigins).toEqual(['https://a.example', 'https://b.example']);
  expect(config.auth.allowDelegationLogin).toBe(false);
  expect(config.trustProxy).toBe(2);
});

it('names every fault at once, with owner and remedy', () => {
  const load = () =>
    loadConfig({
      PORT: 'eighty',
      DATABASE_URL: 'mysql://x',
      CORS_ORIGIN: 'chat.example',
      TRUST_PROXY: 'true',
      ORACLE_MNEMONIC: 'a b c',
      ORACLE_PRIVATE_KEY: '00',
    });
  expect(load).toThrow(ConfigError);
  expect(load).toThrow(/5 variables are wrong/);
  for (const variable of ['PORT', 'DATABASE_URL', 'CORS_ORIGIN', 'TRUST_PROXY', 'ORACLE_MNEMONIC'])
    expect(load).toThrow(new RegExp(`${variable} \\(host\\): .+\\n +→ .+`));
});

it('never repeats a secret in a fault', () => {
  expect(() => loadConfig({ DATABASE_URL: 'mysql://root:hunter2@x', PORT: 'x' })).not.toThrow(
    /hunter2/,
  );
});
