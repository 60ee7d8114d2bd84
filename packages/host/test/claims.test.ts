import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { ask, say } from './support/ask.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { DidWebService, type ServiceRequest } from './support/did-web-service.js';
import { startHost, type TestHost } from './support/host.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

/** The controlled model counts 7 tokens in and 3 out for every call; the title is a second one. */
const TURN = 2 * (7 + 3 * 10);
const CREDIT = 30_000;
const SECRET = 'secret of the clock';

let service: DidWebService;
let model: ControlledModel;
let host: TestHost;
beforeAll(async () => {
  service = await new DidWebService().start();
  model = await startControlledModel();
  host = await startHost({
    env: {
      ...model.env,
      CREDITS_ENABLED: 'true',
      CREDITS_PRICES: JSON.stringify({ '*': { input: 1_000_000, output: 10_000_000 } }),
      CREDITS_TURN_MINIMUM: '25000',
      CREDITS_SERVICE_URL: `http://${service.host}/credit`,
      CREDITS_SERVICE_CACHE_SECONDS: '0',
      CLAIMS_URL: `http://${service.host}/claims/`,
      CRON_SECRET: SECRET,
      OUTGOING_ALLOW: service.host,
    },
  });
});
afterAll(async () => {
  await host?.close();
  model?.close();
  service?.stop();
});

const answers = (credit: number, claim: 'submitted' | 'settled') => (request: ServiceRequest) =>
  request.path === '/credit'
    ? { status: 200, body: { credit } }
    : { status: 200, body: { status: claim, reference: 'tx-1' } };

beforeEach(() => {
  service.requests.splice(0);
  service.answer = answers(CREDIT, 'settled');
});

const get = async (user: TestUser, path: string) => (await user.request('GET', path)).body;
const send = async (user: TestUser) =>
  user.request('POST', `/messages/${await openSession(user)}`, { body: { message: 'hi' } });

async function process(authorization: string | undefined = `Bearer ${SECRET}`) {
  const response = await fetch(`${host.url}/claims/process`, {
    method: 'POST',
    headers: authorization === undefined ? {} : { authorization },
  });
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  return { status: response.status, body: (await response.json()) as any };
}

/** A user with one turn that is not paid yet. */
async function debtor() {
  const alice = new TestUser(host);
  await ask({ model, alice }, [say('hi')]);
  await expect.poll(async () => (await get(alice, '/credits')).unpaid).toBe(TURN);
  return alice;
}

it('the claims plugin asks the subscription service about a user without balance', async () => {
  const alice = await debtor();
  expect(await get(alice, '/credits')).toMatchObject({ balance: 0, reserved: 0, unpaid: TURN });
  const [asked] = service.requests;
  expect(asked).toMatchObject({
    method: 'POST',
    path: '/credit',
    body: { user: alice.did },
    invocation: {
      issuer: host.did,
      audience: service.did,
      can: 'subscription/read',
      with: host.did,
      nb: { user: alice.did },
    },
  });
  await process();
});

it('POST /messages rejects a user without credit, with the claims to settle', async () => {
  const alice = await debtor();
  const { claims } = await get(alice, '/claims');
  expect(claims).toMatchObject([{ amount: TURN, status: 'open' }]);
  service.answer = answers(25_000 + TURN, 'settled');
  const { status, body } = await send(alice);
  expect([status, body.code]).toEqual([402, 'insufficient_credit']);
  expect(body.claims).toEqual([claims[0].id]);
  expect(body.outstandingClaims).toEqual(body.claims);
  await process();
  const next = send(alice);
  (await model.next()).answer('welcome back');
  expect((await next).status).toBe(200);
  await expect.poll(async () => (await get(alice, '/credits')).unpaid).toBe(TURN);
  await process();
});

it('POST /messages rejects while the subscription service is unavailable', async () => {
  service.answer = () => ({ status: 500, body: {} });
  const { status, body } = await send(new TestUser(host));
  expect([status, body.code, body.claims]).toEqual([402, 'insufficient_credit', []]);
  expect(body.message).toContain('cannot be reached');
});

it('the claims plugin submits claims once, and shows them only to their user', async () => {
  const alice = await debtor();
  service.answer = answers(CREDIT, 'submitted');
  const { body } = await process();
  expect(body).toEqual({ status: 'done', submitted: 1, settled: 0, failed: 0, postponed: 0 });
  expect((await process()).body).toMatchObject({ status: 'done', submitted: 0 });
  const [claim] = (await get(alice, '/claims')).claims;
  expect(claim).toMatchObject({ status: 'submitted', amount: TURN, reference: 'tx-1' });
  const submissions = service.requests.filter(({ path }) => path === '/claims');
  expect(submissions).toHaveLength(1);
  expect(submissions[0]).toMatchObject({
    method: 'POST',
    headers: { 'idempotency-key': claim.id },
    body: { claimId: claim.id, user: alice.did, amount: TURN, oracle: host.did },
    invocation: {
      issuer: host.did,
      audience: service.did,
      can: 'claim/submit',
      with: host.did,
      nb: { claim: claim.id, user: alice.did, amount: TURN },
    },
  });
  expect((await get(new TestUser(host), '/claims')).claims).toEqual([]);
});

it.each([undefined, '', 'Bearer', 'Bearer wrong', `Basic ${SECRET}`, SECRET])(
  'processes nothing for %j',
  async (authorization) => {
    const { status, body } = await process(authorization ?? 'none');
    expect([status, body.code]).toEqual([401, 'missing_authentication']);
    expect(service.requests).toEqual([]);
  },
);

it('GET /claims requires a user, and processing requires CRON_SECRET', async () => {
  expect((await fetch(`${host.url}/claims`)).status).toBe(401);
  const alice = new TestUser(host);
  expect((await alice.request('POST', '/claims/process')).status).toBe(401);
});

it('the claims plugin is off without credits, and says why', async () => {
  const other = await startHost({
    env: { CLAIMS_URL: 'https://claims.example', CRON_SECRET: SECRET },
  });
  try {
    const status = other.app.plugins.status().find(({ name }) => name === 'claims');
    expect(JSON.stringify(status)).toContain('credits');
    expect(status).not.toMatchObject({ loaded: true });
    expect((await new TestUser(other).request('GET', '/claims')).status).toBe(404);
  } finally {
    await other.close();
  }
});
