import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runStatement } from './support/cluster.js';
import { startControlledModel } from './support/controlled-model.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession, stream } from './support/stream.js';
import { createTestDatabase } from './support/test-database.js';
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

  it('answers 503 while the disk of PostgreSQL is too full for messages, though not for the probe', async () => {
    const database = await createTestDatabase('postgres');
    const host = await startHost({ env: database.env });
    onTestFinished(async () => {
      await host.close();
      await database.drop();
    });
    const run = (statement: string) => runStatement(database.options.databaseUrl ?? '', statement);
    await run(`create function fail() returns trigger language plpgsql as
      $$ begin raise exception 'no space left' using errcode = '53100'; end $$`);
    await run('create trigger full_disk before insert on sessions execute function fail()');
    const alice = new TestUser(host);
    expect((await alice.request('POST', '/sessions')).status).toBe(503);
    const message = 'The disk of the database is full';
    expect(await readiness(host)).toMatchObject({
      status: 503,
      body: { checks: { store: { status: 'failing', message } } },
    });
    await run('drop trigger full_disk on sessions');
    const isReady = async () => (await readiness(host)).status;
    await expect.poll(isReady, { timeout: 60_000 }).toBe(200);
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
