import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { ask, say } from './support/ask.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { DidWebService } from './support/did-web-service.js';
import { runHost, untilListening } from './support/process.js';
import { createTestDatabase, engines } from './support/test-database.js';
import { TestUser } from './support/user.js';

const SECRET = 'secret of the clock';

let service: DidWebService;
let model: ControlledModel;
beforeAll(async () => {
  service = await new DidWebService().start();
  model = await startControlledModel();
});
afterAll(() => {
  model?.close();
  service?.stop();
});

async function process({ url }: { readonly url: string }) {
  const headers = { authorization: `Bearer ${SECRET}` };
  const response = await fetch(`${url}/claims/process`, { method: 'POST', headers });
  return (await response.json()) as { readonly status: string };
}

it.each(engines)(
  'POST /claims/process continues at once after kill -9 of the host that worked, on %s',
  async (engine) => {
    const database = await createTestDatabase(engine);
    onTestFinished(database.drop);
    const env = {
      ...model.env,
      ...database.env,
      PORT: '0',
      CREDITS_ENABLED: 'true',
      CREDITS_PRICES: JSON.stringify({ '*': { input: 1_000_000, output: 1_000_000 } }),
      CREDITS_TURN_MINIMUM: '25000',
      CREDITS_SERVICE_URL: `http://${service.host}/credit`,
      CLAIMS_URL: `http://${service.host}/claims`,
      CRON_SECRET: SECRET,
      OUTGOING_ALLOW: service.host,
    };
    const start = async () => {
      const host = runHost(env);
      onTestFinished(() => void host.child.kill('SIGKILL'));
      const url = await untilListening(host);
      const { did } = await (await fetch(`${url}/.well-known/oracle.json`)).json();
      return { ...host, url, did: did as string };
    };
    const first = await start();
    // Only one process can use a SQLite file.
    const another = engine === 'postgres' ? await start() : undefined;
    service.answer = () => ({ status: 200, body: { credit: 30_000 } });
    const alice = new TestUser(first);
    await ask({ model, alice }, [say('hi')]);
    const readUnpaid = async () => (await alice.request('GET', '/credits')).body.unpaid;
    await expect.poll(readUnpaid).toBeGreaterThan(0);

    const sent = Promise.withResolvers<void>();
    service.answer = () => {
      sent.resolve();
      return new Promise(() => {});
    };
    process(first).catch(() => undefined);
    await sent.promise;
    if (another) expect(await process(another)).toMatchObject({ status: 'busy' });
    first.child.kill('SIGKILL');
    await first.ended;
    const later = another ?? (await start());
    // Without the host, the lease lasts for a minute.
    await expect.poll(() => process(later), { timeout: 45_000 }).toMatchObject({ status: 'done' });
  },
);
