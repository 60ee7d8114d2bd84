import { randomUUID } from 'node:crypto';
import type { PluginContext, PluginDatabase } from '@sibyl/plugin-kit';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { credits, grantCredits } from '../../credits/src/index.js';
import { costing, openLedger, turn } from '../../credits/test/support/open-ledger.js';
import { ClaimsServer } from '../test/support/claims-server.js';
import { ClaimRunner, RunnerLease } from './claim-runner.js';
import { ClaimStore, computeBackoff } from './claim-store.js';
import { ClaimsService } from './claims-service.js';
import { claims } from './index.js';

/** A host among others, all of which run. */
const newHost = () => ({ hostId: randomUUID(), findDead: async (): Promise<string[]> => [] });

const none = { settled: 0, submitted: 0, failed: 0, postponed: 0 };

describe.each(engines)('ClaimRunner: claims on %s', (engine) => {
  const ledgerTables = usePluginTables(engine, credits);
  const claimTables = usePluginTables(engine, claims);
  let server: ClaimsServer;
  let now = 1_000_000;
  const clock = () => now;
  beforeEach(async () => {
    server = await new ClaimsServer().start();
  });
  // Nothing is left over for the next test.
  afterEach(async () => {
    await server.stop();
    await ledgerTables.database.write((tables) => tables.deleteFrom('credits_unpaid').execute());
    await claimTables.database.write((tables) => tables.deleteFrom('claims_claims').execute());
  });

  function openClaims(database: PluginDatabase = claimTables.database) {
    const context = {
      fetch,
      oracle: { did: 'did:key:zOracle', name: 'Oracle' },
      ucan: {
        resolveServiceDid: async (url: string) => `did:web:${new URL(url).host}`,
        mintInvocation: async (request: object) => JSON.stringify(request),
      },
    } as unknown as PluginContext;
    const usage = openLedger(ledgerTables.database, { clock }).unpaid;
    const store = new ClaimStore({ database, clock });
    const service = new ClaimsService({ context, url: server.url });
    const newLease = () => new RunnerLease({ database, clock, hosts: newHost() });
    const logger = { info: () => {}, warn: () => {}, error: () => {} };
    return {
      runner: new ClaimRunner({ store, service, usage, newLease, logger, elapsed: clock }),
      listClaims: async (owner: string) => {
        await store.adopt(await usage.listByOwner(owner));
        return store.list({ owner, limit: 10 });
      },
    };
  }

  /** A user whose last turn cost more than the balance. */
  async function debtor(amount = 300) {
    const owner = newOwner();
    const { reservations } = openLedger(ledgerTables.database, { clock });
    await grantCredits(ledgerTables.database, { owner, amount: 100 });
    const key = await reservations.reserve({ owner, ...turn, amount: 100 });
    await reservations.settle(key, costing(100 + amount));
    return owner;
  }

  const readStatement = (owner: string) =>
    openLedger(ledgerTables.database).ledger.statement({ owner, limit: 10 });

  it('are open from the moment usage is unpaid', async () => {
    const owner = await debtor();
    const [claim] = await openClaims().listClaims(owner);
    expect(claim).toMatchObject({ amount: 300, status: 'open', ...turn });
    expect(await openClaims().listClaims(newOwner())).toEqual([]);
  });

  it('are submitted with an invocation, settled, and never sent again', async () => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    expect(await runner.run()).toEqual({ status: 'done', ...none, settled: 1 });
    const [claim] = await listClaims(owner);
    const id = claim?.id ?? '';
    expect(claim).toMatchObject({ status: 'settled', reference: `tx-${id}` });
    expect(server.received).toHaveLength(1);
    const [{ key, body, authorization } = { key: '', body: {}, authorization: '' }] =
      server.received;
    expect(key).toBe(id);
    expect(body).toMatchObject({
      claimId: id,
      user: owner,
      amount: 300,
      oracle: 'did:key:zOracle',
    });
    expect(JSON.parse(authorization.replace('Bearer ', ''))).toMatchObject({
      audience: expect.stringContaining('did:web:127.0.0.1'),
      can: 'claim/submit',
      nb: { claim: id, user: owner, amount: 300 },
    });
    expect(await readStatement(owner)).toMatchObject({ balance: 0, unpaid: 0 });
    expect(await runner.run()).toEqual({ status: 'done', ...none });
    now += computeBackoff(99);
    expect(await runner.run()).toEqual({ status: 'done', ...none });
    expect(server.received).toHaveLength(1);
  });

  it('wait for the service to settle them', async () => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    server.verdict = 'submitted';
    expect(await runner.run()).toEqual({ status: 'done', ...none, submitted: 1 });
    expect(await runner.run()).toEqual({ status: 'done', ...none });
    const [claim] = await listClaims(owner);
    expect(claim).toMatchObject({ status: 'submitted' });
    server.verdicts.set(claim?.id ?? '', 'settled');
    now += computeBackoff(1);
    expect(await runner.run()).toEqual({ status: 'done', ...none, settled: 1 });
    expect(server.received).toHaveLength(1);
    expect(await readStatement(owner)).toMatchObject({ unpaid: 0 });
  });

  it('that failed are paid by the balance again', async () => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    server.refusal = 422;
    expect(await runner.run()).toEqual({ status: 'done', ...none, failed: 1 });
    const reason = 'The service answered 422';
    expect(await listClaims(owner)).toMatchObject([{ status: 'failed', reason }]);
    now += computeBackoff(99);
    expect(await runner.run()).toEqual({ status: 'done', ...none });
    await grantCredits(ledgerTables.database, { owner, amount: 400 });
    expect(await readStatement(owner)).toMatchObject({ balance: 100, unpaid: 0 });
  });

  it.each([500, 503, 401, 429])('are tried again, later each time, after a %i', async (refusal) => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    server.refusal = refusal;
    for (const attempt of [1, 2, 3]) {
      expect(await runner.run()).toEqual({ status: 'done', ...none, postponed: 1 });
      expect(server.received).toHaveLength(attempt);
      now += computeBackoff(attempt) - 1;
      expect(await runner.run()).toEqual({ status: 'done', ...none });
      now += 1;
    }
    expect(await listClaims(owner)).toMatchObject([{ status: 'open', reason: expect.any(String) }]);
    server.refusal = undefined;
    expect(await runner.run()).toEqual({ status: 'done', ...none, settled: 1 });
  });

  it('ClaimRunner.stop ends a run after its current claim: none is lost, none is sent twice', async () => {
    const { runner } = openClaims();
    const owners = [await debtor(), await debtor(), await debtor()];
    const answering = Promise.withResolvers<void>();
    server.delay = answering.promise;
    const run = runner.run();
    await expect.poll(() => server.received.length).toBe(1);
    const stopped = runner.stop();
    answering.resolve();
    await stopped;
    expect(await run).toEqual({ status: 'unfinished', ...none, settled: 1 });
    expect(server.received).toHaveLength(1);
    // Another process can continue at once: the lease is released.
    expect(await openClaims().runner.run()).toEqual({ status: 'done', ...none, settled: 2 });
    const keys = server.received.map(({ key }) => key);
    expect(new Set(keys).size).toBe(3);
    for (const owner of owners) expect(await readStatement(owner)).toMatchObject({ unpaid: 0 });
  });

  it('ClaimRunner shows no address of the service in the reason', async () => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    server.hangsUp = true;
    await runner.run();
    const [claim] = await listClaims(owner);
    expect(claim?.reason).toContain('cannot be reached');
    expect(claim?.reason).not.toContain('127.0.0.1');
    server.hangsUp = false;
    now += computeBackoff(1);
    await runner.run();
  });

  it('ClaimRunner does not resend claims whose reply was lost', async () => {
    const { runner } = openClaims();
    const owner = await debtor();
    server.hangsUp = true;
    expect(await runner.run()).toEqual({ status: 'done', ...none, postponed: 1 });
    // Meanwhile the balance must not pay them too.
    await grantCredits(ledgerTables.database, { owner, amount: 1000 });
    server.hangsUp = false;
    now += computeBackoff(1);
    expect(await runner.run()).toEqual({ status: 'done', ...none, settled: 1 });
    expect(server.received).toHaveLength(1);
    expect(server.asked).toBe(1);
    expect(await readStatement(owner)).toMatchObject({ balance: 1000, unpaid: 0 });
  });

  it('that a grant paid first are not sent at all', async () => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    await listClaims(owner);
    await grantCredits(ledgerTables.database, { owner, amount: 300 });
    expect(await runner.run()).toEqual({ status: 'done', ...none, settled: 1 });
    expect(server.received).toEqual([]);
  });

  it('have the amount that is left when they are sent', async () => {
    const { runner, listClaims } = openClaims();
    const owner = await debtor();
    await listClaims(owner);
    await grantCredits(ledgerTables.database, { owner, amount: 120 });
    expect(await listClaims(owner)).toMatchObject([{ status: 'open', amount: 180 }]);
    await runner.run();
    expect(server.received).toMatchObject([{ body: { amount: 180 } }]);
  });

  it('are processed by one runner at a time, also across processes', async () => {
    const first = openClaims().runner;
    const second = openClaims(await claimTables.another()).runner;
    await debtor();
    let letGo = () => {};
    server.delay = new Promise((resolve) => {
      letGo = resolve;
    });
    const working = first.run();
    await expect.poll(() => server.received.length).toBe(1);
    const others = await Promise.all([first.run(), second.run(), second.run()]);
    expect(others).toEqual(Array(3).fill({ status: 'busy', ...none }));
    letGo();
    expect(await working).toMatchObject({ settled: 1 });
    expect(await second.run()).toEqual({ status: 'done', ...none });
    expect(server.received).toHaveLength(1);
  });

  it('that another runner has ended stay so when a runner that was frozen continues', async () => {
    const owner = await debtor();
    const frozen = openClaims();
    const answering = Promise.withResolvers<void>();
    server.delay = answering.promise;
    server.refusal = 503;
    const late = frozen.runner.run();
    await expect.poll(() => server.received.length).toBe(1);
    now += 60_001;
    server.delay = undefined;
    server.refusal = 422;
    const other = openClaims(await claimTables.another());
    expect(await other.runner.run()).toEqual({ status: 'done', ...none, failed: 1 });
    server.refusal = 503;
    answering.resolve();
    await late;
    expect(await other.listClaims(owner)).toMatchObject([{ status: 'failed' }]);
  });

  it('do not wait for ever for a runner that died', async () => {
    const dead = new RunnerLease({
      database: claimTables.database,
      clock,
      hosts: newHost(),
    });
    expect(await dead.hold()).toBe(true);
    await debtor();
    const { runner } = openClaims();
    expect(await runner.run()).toMatchObject({ status: 'busy' });
    now += 60_001;
    expect(await runner.run()).toMatchObject({ status: 'done', settled: 1 });
    expect(server.received).toHaveLength(1);
  });
});

describe.each(engines)('RunnerLease.hold on %s', (engine) => {
  const tables = usePluginTables(engine, claims);

  it('ends the lease of a dead host at once, but of no other runner', async () => {
    const { database } = tables;
    const dead: string[] = [];
    const findDead = async (ids: readonly string[]) => ids.filter((id) => dead.includes(id));
    const hosts = ['a', 'b'].map((hostId) => ({ hostId, findDead }));
    const [first, second, third] = [0, 0, 1].map(
      (host) => new RunnerLease({ database, clock: () => 0, hosts: hosts[host] ?? newHost() }),
    );
    expect(await first?.hold()).toBe(true);
    expect([await second?.hold(), await third?.hold()]).toEqual([false, false]);
    dead.push('a');
    expect([await third?.hold(), await third?.hold()]).toEqual([true, true]);
    expect(await first?.hold()).toBe(false);
  });
});
