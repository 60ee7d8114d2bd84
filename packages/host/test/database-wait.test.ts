import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { findFreePort } from './support/free-port.js';
import { type HostProcess, runHost, untilListening } from './support/process.js';
import { RestartablePostgres } from './support/restartable-postgres.js';

const LOG_LINE = /PostgreSQL cannot be reached: trying again for a minute/g;

let postgres: RestartablePostgres;
beforeAll(async () => {
  postgres = await RestartablePostgres.start();
});
afterAll(() => postgres?.stop());

async function startHost(): Promise<{ readonly host: HostProcess; readonly url: string }> {
  const port = await findFreePort();
  const host = runHost({
    PORT: String(port),
    DATABASE_URL: postgres.url,
    ORACLE_PRIVATE_KEY: '1'.repeat(64),
  });
  onTestFinished(() => void host.child.kill('SIGKILL'));
  return { host, url: `http://127.0.0.1:${port}` };
}

it.each([
  // Longer than a connection may take.
  ['frozen', () => postgres.freeze(12_000)],
  ['down', () => postgres.crash(5_000)],
])(
  'GET /health/ready answers 503 while PostgreSQL is %s at the start, until the host is ready',
  {
    timeout: 120_000,
  },
  async (_, disturb) => {
    const disturbing = disturb();
    const { host, url } = await startHost();
    const read = async (path: string) => {
      const response = await fetch(url + path);
      const { status, headers } = response;
      return { status, retryAfter: headers.get('retry-after'), body: await response.json() };
    };
    await expect.poll(() => read('/health/ready').catch(() => undefined)).toBeDefined();
    expect(await read('/health/ready')).toMatchObject({
      status: 503,
      retryAfter: '5',
      body: { status: 'not_ready', checks: { store: { status: 'failing' } } },
    });
    expect(await read('/health')).toMatchObject({ status: 200, body: { status: 'ok' } });
    expect(await read('/sessions')).toMatchObject({
      status: 503,
      retryAfter: '5',
      body: { statusCode: 503, code: 'store_unavailable' },
    });
    await disturbing;
    expect(await untilListening(host)).toBe(url);
    expect(await read('/health/ready')).toMatchObject({ status: 200 });
    expect((await read('/sessions')).status).toBe(401);
    expect(host.output().match(LOG_LINE)).toHaveLength(1);
  },
);
