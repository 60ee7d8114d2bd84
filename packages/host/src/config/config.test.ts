import { ConfigError } from '@sibyl/server-kit/environment';
import { expect, it } from 'vitest';
import { loadConfig, readFeatures } from './config.js';

it('loadConfig has a default for everything', () => {
  expect(loadConfig({})).toMatchObject({
    host: '127.0.0.1',
    port: 3000,
    dataDir: './data',
    databaseUrl: undefined,
    bodyLimit: 1024 * 1024,
    bodiesLimit: 64 * 1024 * 1024,
    corsOrigins: ['*'],
    auth: { maxTtlSeconds: 900, allowDelegationLogin: true },
  });
});

it('loadConfig returns a deeply frozen object', () => {
  const config = loadConfig({});
  expect(Object.isFrozen(config)).toBe(true);
  for (const part of Object.values(config))
    if (typeof part === 'object') expect(Object.isFrozen(part)).toBe(true);
});

it('readFeatures reads which plugins are enabled or disabled', () => {
  const features = readFeatures({ FEATURES: 'memory=false, slack=true,mcp=auto' });
  expect(features).toEqual({ memory: false, slack: true, mcp: 'auto' });
  for (const FEATURES of ['memory', 'memory=no', 'Memory=true'])
    expect(() => loadConfig({ FEATURES })).toThrow(/FEATURES \(host\): must be plugins/);
});

it('loadConfig treats an empty variable as unset', () => {
  expect(loadConfig({ PORT: '', DATABASE_URL: '  ' })).toMatchObject({ port: 3000 });
});

it('loadConfig reads sizes, lists, flags and hops', () => {
  const config = loadConfig({
    BODY_LIMIT: '512KB',
    // Addresses as browsers show them end with a slash.
    CORS_ORIGIN: 'https://a.example/, https://b.example',
    UCAN_ALLOW_DELEGATION_LOGIN: 'false',
    TRUST_PROXY: '2',
  });
  expect(config.bodyLimit).toBe(512 * 1024);
  expect(config.corsOrigins).toEqual(['https://a.example', 'https://b.example']);
  expect(config.auth.allowDelegationLogin).toBe(false);
  expect(config.trustProxy).toBe(2);
});

it('loadConfig reports all issues together, with owner and remedy', () => {
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
  expect(load).toThrow(/5 things are wrong/);
  for (const variable of ['PORT', 'DATABASE_URL', 'CORS_ORIGIN', 'TRUST_PROXY', 'ORACLE_MNEMONIC'])
    expect(load).toThrow(new RegExp(`${variable} \\(host\\): .+\\n +→ .+`));
});

it.each(['0.0.0.0/0', '::/0', '10.0.0.0/33', 'fc00::/129', '10.0.0.0/', '10.0.0.0/8/8'])(
  'loadConfig refuses TRUST_PROXY=%s, which is not a range of proxies',
  (range) => {
    const load = () => loadConfig({ TRUST_PROXY: `loopback,${range}` });
    expect(load).toThrow(/TRUST_PROXY \(host\): must be a number of hops/);
  },
);

it('loadConfig selects the built-in model without a key', () => {
  const { models } = loadConfig({});
  expect(models).toMatchObject({ main: 'offline', small: 'offline', choices: ['offline'] });
  expect(models).toMatchObject({ firstPartSeconds: 120, stallSeconds: 60 });
});

it('loadConfig selects the default models of the providers whose keys are set, in order', () => {
  const { models } = loadConfig({ ANTHROPIC_API_KEY: 'a', GOOGLE_GENERATIVE_AI_API_KEY: 'g' });
  expect(models.main).toMatch(/^anthropic\//);
  expect(models.small).toMatch(/^anthropic\//);
  expect(models.choices.filter((id) => id.startsWith('google/'))).toHaveLength(2);
  expect(models.providers.anthropic.apiKey).toBe('a');
});

it('loadConfig allows only the configured models if MODEL is set', () => {
  const { models } = loadConfig({
    MODEL: 'openai-compatible/meta/llama:8b',
    MODEL_BASE_URL: 'http://127.0.0.1:11434/v1',
    OPENAI_API_KEY: 'o',
    MODEL_CHOICES: 'openai/gpt-4.1, offline',
  });
  expect(models.main).toBe('openai-compatible/meta/llama:8b');
  expect(models.small).toBe(models.main);
  expect(models.choices).toEqual([models.main, 'openai/gpt-4.1', 'offline']);
});

it.each([
  [
    { MODEL: 'anthropic/claude' },
    /MODEL \(host\): .*ANTHROPIC_API_KEY.*\n +→ Set ANTHROPIC_API_KEY/,
  ],
  [{ MODEL: 'mistral/large' }, /MODEL \(host\): .*"mistral".*\n +→ .*openai-compatible/],
  [{ MODEL: 'openai-compatible/x' }, /MODEL \(host\): .*MODEL_BASE_URL/],
  [{ EMBEDDING_MODEL: 'anthropic/x' }, /EMBEDDING_MODEL \(host\): Anthropic has no embedding/],
  [{ EMBEDDING_MODEL: 'openai/x' }, /EMBEDDING_MODEL \(host\): .*OPENAI_API_KEY/],
  [{ EMBEDDING_MODEL: 'openai-compatible/x' }, /EMBEDDING_MODEL \(host\): .*MODEL_BASE_URL/],
  [{ MODEL_SMALL: 'google/x' }, /MODEL_SMALL \(host\): .*GOOGLE_GENERATIVE_AI_API_KEY/],
  [{ MODEL_CHOICES: 'offline, openai/x' }, /MODEL_CHOICES \(host\): .*OPENAI_API_KEY/],
  [{ MODEL_BASE_URL: 'http://127.0.0.1:1/v1' }, /MODEL_BASE_URL \(host\): .*\n +→ .*MODEL=/],
  [{ MODEL: 'gpt-5' }, /MODEL \(host\): must be provider\/model-id/],
  [
    { MODEL_STALL_TIMEOUT_SECONDS: '0' },
    /MODEL_STALL_TIMEOUT_SECONDS \(host\): must be at least 1/,
  ],
])('loadConfig rejects %j', (env, text) => {
  expect(() => loadConfig(env)).toThrow(text);
});

it('loadConfig reports issues of single values and of combinations together', () => {
  expect(() => loadConfig({ PORT: 'x', MODEL: 'openai/x' })).toThrow(/2 things are wrong/);
});

it('loadConfig never repeats a secret in an issue', () => {
  expect(() => loadConfig({ DATABASE_URL: 'mysql://root:hunter2@x', PORT: 'x' })).not.toThrow(
    /hunter2/,
  );
});
