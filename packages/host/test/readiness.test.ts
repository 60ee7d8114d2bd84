import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { TestUser } from './support/user.js';

async function readiness({ url }: Pick<TestHost, 'url'>) {
  const response = await fetch(`${url}/health/ready`);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
}

describe('GET /health/ready', () => {
  it('answers 200 with all checks, without internal details', async () => {
    const host = await startHost();
    onTestFinished(host.close);
    const { status, body } = await readiness(host);
    expect(status).toBe(200);
    const ok = { status: 'ok', message: expect.any(String) };
    expect(body).toEqual({
      status: 'ready',
      timestamp: expect.any(String),
      checks: {
        host: ok,
        store: ok,
        disk: ok,
        model: { status: 'unknown', message: expect.any(String) },
        plugins: ok,
      },
    });
    expect(JSON.stringify(body)).not.toContain(host.dataDir);
  });

  it('answers 503 while running turns finish during the shutdown', async () => {
    const model = await startControlledModel();
    onTestFinished(model.close);
    const host = await startHost({ env: model.env });
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    const live = await stream(alice, sessionId, { message: 'hold on' });
    const turn = await model.next();
    const closed = host.close();
    const { status, body } = await readiness(host);
    expect(status).toBe(503);
    expect(body).toMatchObject({
      status: 'not_ready',
      checks: { host: { status: 'failing', message: 'The host is stopping' } },
    });
    expect((await fetch(`${host.url}/health`)).status).toBe(200);
    const refused = await alice.request('POST', `/messages/${sessionId}`, {
      body: { message: 'too late' },
    });
    expect([refused.status, refused.body.code]).toEqual([503, 'host_stopping']);
    turn.answer('the end');
    expect((await live.toEnd()).at(-1)?.data.status).toBe('finished');
    await closed;
    await expect(fetch(`${host.url}/health`)).rejects.toThrow();
  });

  it('reports a model provider that rejected the key, and stays ready', async () => {
    const provider = createServer((_, response) => {
      response.writeHead(401, { 'content-type': 'application/json' }).end('{"error":"no"}');
    }).listen(0, '127.0.0.1');
    await once(provider, 'listening');
    onTestFinished(() => void provider.close());
    const { port } = provider.address() as AddressInfo;
    const host = await startHost({
      env: { MODEL: 'openai-compatible/x', MODEL_BASE_URL: `http://127.0.0.1:${port}/v1` },
    });
    onTestFinished(host.close);
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    await alice.request('POST', `/messages/${sessionId}`, { body: { message: 'hi' } });
    expect(await readiness(host)).toMatchObject({
      status: 200,
      body: {
        status: 'ready',
        checks: { model: { status: 'failing', message: 'The model provider rejected the key' } },
      },
    });
  });

  it('reports a model that answered', async () => {
    const host = await startHost();
    onTestFinished(host.close);
    const alice = new TestUser(host);
    const sessionId = await openSession(alice);
    await alice.request('POST', `/messages/${sessionId}`, { body: { message: 'hi' } });
    expect(await readiness(host)).toMatchObject({ body: { checks: { model: { status: 'ok' } } } });
  });
});
