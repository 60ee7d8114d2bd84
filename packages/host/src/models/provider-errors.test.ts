import { describe, expect, it } from 'vitest';
import type { Ending } from '../../test/support/model-servers/script.ts';
import {
  collect,
  hello,
  KEY,
  type Provider,
  providers,
  useProviders,
} from '../../test/support/model-servers/scripted-provider.ts';
import { ModelError } from './model.js';

const open = useProviders();

describe.each(providers)('createProviderModel for %s', (provider) => {
  it.each<[number, Record<string, string>, string, number]>([
    [401, {}, 'auth', 1],
    [403, {}, 'auth', 1],
    [402, {}, 'billing', 1],
    [400, {}, 'unknown', 1],
    [404, {}, 'unknown', 1],
    [408, {}, 'timeout', 1],
    [500, {}, 'server', 3],
    [503, {}, 'server', 3],
    [529, {}, 'server', 3],
    [429, { 'retry-after': '7' }, 'rate_limit', 3],
    [429, { 'retry-after': '3600' }, 'rate_limit', 1],
  ])('reports %i %j as %s after %i attempts', async (status, headers, kind, tries) => {
    const message = `failed: key ${KEY} at https://user:pass@host/x ${'long '.repeat(200)}`;
    const body = { error: { message, type: 'some_error' } };
    const { model, server } = await open(provider, { error: { status, headers, body } });
    const { fault, parts } = await collect(model);
    expect(fault).toBeInstanceOf(ModelError);
    expect(fault?.kind).toBe(kind);
    expect(parts).toEqual([]);
    expect(server.requests).toHaveLength(tries);
    const shown = `${fault?.message} ${fault?.cause} ${JSON.stringify(fault)}`;
    expect(shown).not.toContain(KEY);
    expect(shown).not.toContain('pass');
    expect(fault?.message.length).toBeLessThan(300);
    if (headers['retry-after'])
      expect(fault?.retryAfterSeconds).toBe(Number(headers['retry-after']));
  });

  it('waits as long as the provider asks, then succeeds', async () => {
    const refused = { error: { status: 429, headers: { 'retry-after': '7' } } };
    const { model, waits } = await open(provider, refused, { error: { status: 500 } }, hello);
    expect((await collect(model)).text).toBe('Hello wörld');
    expect(waits).toEqual([7000, 1000]);
  });

  it('recognizes an empty account by the text', async () => {
    const body = {
      error: {
        message: 'You exceeded your current quota',
        type: 'insufficient_quota',
        code: 'insufficient_quota',
      },
    };
    const { model, server } = await open(provider, { error: { status: 429, body } });
    expect((await collect(model)).fault?.kind).toBe('billing');
    expect(server.requests).toHaveLength(1);
  });

  it.each<[Ending, string, number]>([
    ['drops-before-headers', 'network', 3],
    ['drops-after-headers', 'network', 3],
    ['drops-mid-event', 'network', 1],
    ['drops-before-finish', 'network', 1],
    ['ends-before-finish', 'network', 1],
    ['malformed', 'server', 1],
  ])('reports %s as %s after %i attempts and keeps received parts', async (ending, kind, tries) => {
    const { model, server } = await open(provider, { ...hello, ending });
    const { fault, text } = await collect(model);
    expect(fault).toBeInstanceOf(ModelError);
    expect(fault?.kind).toBe(kind);
    expect(server.requests).toHaveLength(tries);
    if (tries === 1) expect(text).toMatch(/^Hel/);
  });

  it('reports an unreachable server', async () => {
    const { model, server } = await open(provider, hello);
    await server.close();
    const { fault } = await collect(model);
    expect(fault).toMatchObject({ kind: 'network', retryable: true });
  });

  it('classifies an error in the stream', async () => {
    const { model } = await open(provider, { ...hello, events: [errorEvents[provider]] });
    const { fault, text } = await collect(model);
    expect(fault?.kind).toBe('server');
    expect(text).toMatch(/^(Hello wörld)?$/);
  });
});

const errorEvents: Record<Provider, string> = {
  openai:
    'event: error\ndata: {"type":"error","sequence_number":9,"error":{"type":"server_error","code":"server_error","message":"oh","param":null}}\n\n',
  anthropic:
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
  google: 'data: {"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}\n\n',
  'openai-compatible': 'data: {"error":{"message":"oh","type":"server_error","code":500}}\n\n',
};
