import { createOracleClient, createSigner, type OracleSigner } from '@sibyl/client';
import { generateSigner } from '@sibyl/ucan';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { startHost, type TestHost } from '../../host/test/support/host.js';

let host: TestHost;
beforeAll(async () => {
  host = await startHost();
});
afterAll(() => host.close());
// Only the clock: sockets and the server keep their timers.
beforeEach(() => void vi.useFakeTimers({ toFake: ['Date'] }));
afterEach(() => void vi.useRealTimers());

/** A signer that records its tokens. */
function countingSigner() {
  const signer = createSigner(generateSigner());
  const minted: { now: number; expiration: number }[] = [];
  const counting: OracleSigner = {
    ...signer,
    invoke: async (request) => {
      const token = await signer.invoke(request);
      minted.push({ now: request.now, expiration: token.expiration });
      return token;
    },
  };
  return { minted, client: createOracleClient({ url: host.url, signer: counting }) };
}

describe('BearerTokens', () => {
  it('mints a token for 300 s, reuses it, and renews it 30 s before it expires', async () => {
    const { client, minted } = countingSigner();
    const start = Date.now();
    await Promise.all([client.sessions.list(), client.sessions.list(), client.delegation.status()]);
    expect(minted).toHaveLength(1);
    expect((minted[0]?.expiration ?? 0) - (minted[0]?.now ?? 0)).toBe(300);
    vi.setSystemTime(start + 269_000);
    await client.sessions.list();
    expect(minted).toHaveLength(1);
    vi.setSystemTime(start + 271_000);
    await Promise.all([client.sessions.list(), client.sessions.list()]);
    expect(minted).toHaveLength(2);
  });

  it('replaces a rejected token once; a second rejection is final', async () => {
    const signer = createSigner(generateSigner());
    let calls = 0;
    const client = createOracleClient({
      url: host.url,
      signer: { ...signer, invoke: () => signer.delegate({ ...nothing, audience: host.did }) },
      fetch: (url, request) => {
        if (String(url).endsWith('/sessions')) calls += 1;
        return fetch(url, request);
      },
    });
    await expect(client.sessions.list()).rejects.toMatchObject({
      code: 'invalid_invocation',
      status: 401,
    });
    expect(calls).toBe(2);
  });
  const nothing = { capabilities: [], expiration: Math.floor(Date.now() / 1000) + 300 };
});
