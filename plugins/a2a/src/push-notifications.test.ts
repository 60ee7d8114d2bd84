import { randomUUID } from 'node:crypto';
import { OracleError, type SafeFetch } from '@sibyl/plugin-kit';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { usePluginTables } from '../../../packages/host/test/support/plugin-tables.js';
import { engines, newOwner } from '../../../packages/host/test/support/test-database.js';
import { a2a } from './index.js';
import { PushConfigStore, PushNotifications } from './push-notifications.js';

const url = 'https://example.com';
const newHost = () => ({ hostId: randomUUID(), findDead: async (): Promise<string[]> => [] });
const findHolder = async (owner: string) => ({ owner, address: owner, isKnown: false });
const task = { task_id: 'task', session_id: 's', context_id: 'c', message_id: 'm', access: 'null' };

describe.each(engines)('PushConfigStore on %s', (engine) => {
  const test = usePluginTables(engine, a2a);

  it('keeps 10 configs of a task and no more, also when many are added at once', async () => {
    const owner = newOwner();
    const stores = [
      new PushConfigStore(test.database, newHost()),
      new PushConfigStore(await test.another(), newHost()),
    ];
    const adding = Array.from({ length: 20 }, (_, i) =>
      stores[i % 2]?.add({ owner, ...task, id: `${i}`, url }),
    );
    const outcomes = await Promise.allSettled(adding);
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(10);
    expect(await stores[0]?.list({ owner, taskId: 'task' })).toHaveLength(10);
  });

  it('leaves a config as it is that was replaced while the earlier one was in use', async () => {
    const owner = newOwner();
    const store = new PushConfigStore(test.database, newHost());
    await store.add({ owner, ...task, id: 'a', url: 'https://example.com/old' });
    const row = (await store.takeDue(owner, 20, 30_000)).find((each) => each.owner === owner);
    if (!row) throw new Error('It is due');
    await store.add({ owner, ...task, id: 'a', url });
    await store.recordDelivery(row, 'run finished', true);
    expect(await store.drop(row)).toBe(false);
    const [left] = await store.list({ owner, taskId: 'task' });
    expect(left).toMatchObject({ url, delivered: null, due_at: expect.any(Number) });
  });

  it('takes what a dead host had in hand at once, but not what it tries again later or never', async () => {
    const owner = newOwner();
    const dead = new PushConfigStore(test.database, { ...newHost(), hostId: 'dead' });
    const findDead = async (ids: readonly string[]) => ids.filter((id) => id === 'dead');
    const other = new PushConfigStore(await test.another(), { ...newHost(), findDead });
    for (const id of ['later', 'ended', 'in hand']) await dead.add({ owner, ...task, id, url });
    const rows = (await dead.takeDue(owner, 20, 600_000)).filter((row) => row.owner === owner);
    const later = rows.find(({ id }) => id === 'later');
    if (!later) throw new Error('It is due');
    await dead.retry(later, 1, 600_000);
    // As a host of the previous version ends it.
    await test.database.write((tables) =>
      tables
        .updateTable('a2a_push_configs')
        .set({ due_at: null })
        .where('owner', '=', owner)
        .where('id', '=', 'ended')
        .execute(),
    );
    await other.listDueOwners({ after: '', limit: 1 });
    const taken = (await other.takeDue(owner, 20, 0)).filter((row) => row.owner === owner);
    expect(taken.map(({ id }) => id)).toEqual(['in hand']);
  });

  it('a host that was frozen while it posted leaves what another one has recorded', async () => {
    const owner = newOwner();
    const frozen = new PushConfigStore(test.database, newHost());
    const other = new PushConfigStore(await test.another(), newHost());
    await frozen.add({ owner, ...task, id: 'a', url });
    const row = (await frozen.takeDue(owner, 20, 0)).find((each) => each.owner === owner);
    if (!row) throw new Error('It is due');
    await other.recordDelivery(row, 'run finished', true);
    await frozen.postpone(row);
    await frozen.retry(row, 1, 30_000);
    await frozen.recordDelivery(row, 'run paused', false);
    const [left] = await frozen.list({ owner, taskId: 'task' });
    expect(left).toMatchObject({ delivered: 'run finished', attempts: 0, due_at: null });
  });

  it('at the limit of a user, the oldest config of a task that has ended makes room', async () => {
    const owner = newOwner();
    const store = new PushConfigStore(test.database, newHost());
    const rows = Array.from({ length: 1000 }, (_, i) => ({
      ...{
        owner,
        ...task,
        task_id: `task ${i}`,
        id: 'a',
        url,
        delivered: null,
        attempts: 0,
        holder: null,
      },
      ...{ created_at: Date.now() + i, due_at: [5, 7].includes(i) ? null : Date.now() + 600_000 },
    }));
    await test.database.write(async (tables) => {
      for (let i = 0; i < rows.length; i += 100)
        await tables
          .insertInto('a2a_push_configs')
          .values(rows.slice(i, i + 100))
          .execute();
    });
    const add = (id: string) => store.add({ owner, ...task, id, url });
    expect(await add('1')).toMatchObject([{ owner, task_id: 'task 5', id: 'a' }]);
    expect(await add('2')).toMatchObject([{ owner, task_id: 'task 7', id: 'a' }]);
    await expect(add('3')).rejects.toThrow(/1000/);
    await expect(add('2')).resolves.toEqual([{ owner, task_id: 'task', id: '2', url }]);
  });

  it('keeps the credentials of an address that could not be replaced', async () => {
    const secrets = new Map<string, string>();
    const store = new PushConfigStore(test.database, newHost());
    const push = new PushNotifications({
      store,
      secrets: () => ({
        get: async (name) => secrets.get(name),
        set: async (name, value) =>
          void (value === undefined ? secrets.delete(name) : secrets.set(name, value)),
      }),
      turns: { outcome: async () => ({ runId: 'task', status: 'running', text: '' }) },
      surface: { keepsAccess: async () => true },
      questions: { pending: async () => [] },
      fetch: () => Promise.reject(new Error('Nothing is posted')),
      ucan: { signWebhook: () => '' },
      pageUrl: url,
      findHolder,
      logger: { info: vi.fn(), warn: vi.fn(), error: vi.fn() },
    });
    onTestFinished(() => push.close());
    const owner = newOwner();
    const facts = { id: 'task', contextId: 'c', sessionId: 's', messageId: 'm' };
    const running = { status: 'running', updatedAt: 0, text: '', questions: [] } as const;
    const add = (address: string, token: string) =>
      push.add(
        { did: owner, cids: [] },
        { ...facts, ...running, pageUrl: url },
        { tenant: '', taskId: 'task', id: 'a', url: address, token, authentication: undefined },
      );
    const list = async () =>
      (await push.list({ owner, taskId: 'task' })).map((config) => [config.url, config.token]);

    await add(`${url}/1`, 'first');
    vi.spyOn(store, 'add').mockRejectedValueOnce(new OracleError('store_unavailable'));
    await expect(add(`${url}/2`, 'second')).rejects.toThrow('not available');
    expect(await list()).toEqual([[`${url}/1`, 'first']]);

    await add(`${url}/2`, 'second');
    expect(await list()).toEqual([[`${url}/2`, 'second']]);
    await push.remove({ owner, taskId: 'task', id: 'a' });
    expect(secrets).toEqual(new Map());
  });

  it('PushNotifications post for others while receivers of users at one address do not answer', {
    timeout: 90_000,
  }, async () => {
    const store = new PushConfigStore(test.database, newHost());
    const access = (did: string) => ({ access: JSON.stringify({ did, cids: [] }) });
    const posted: string[] = [];
    const left = new AbortController();
    const fetch: SafeFetch = async (target) => {
      posted.push(String(target));
      if (!String(target).includes('dead')) return new Response('');
      return new Promise((_, reject) => {
        left.signal.addEventListener('abort', reject);
        if (left.signal.aborted) reject(left.signal.reason);
      });
    };
    const attackers = Array.from({ length: 40 }, newOwner);
    for (const owner of attackers)
      for (const id of ['a', 'b', 'c'])
        await store.add({ owner, ...task, ...access(owner), id, url: `${url}/dead` });
    const honest = newOwner();
    const readHolder = async (owner: string) => ({
      owner,
      address: attackers.includes(owner) ? '192.0.2.1' : owner,
      isKnown: false,
    });
    const push = new PushNotifications({
      store,
      secrets: () => ({ get: async () => undefined, set: async () => undefined }),
      turns: { outcome: async () => ({ runId: 'task', status: 'finished', text: '' }) },
      surface: { keepsAccess: async () => true },
      questions: { pending: async () => [] },
      fetch,
      ucan: { signWebhook: () => '' },
      pageUrl: url,
      findHolder: readHolder,
      logger: { info: vi.fn(), warn: vi.fn(), error: vi.fn() },
    });
    onTestFinished(() => {
      left.abort();
      return push.close();
    });
    await expect.poll(() => posted.length, { timeout: 60_000 }).toBe(10);
    await store.add({ owner: honest, ...task, ...access(honest), id: 'a', url: `${url}/alive` });
    await expect.poll(() => posted, { timeout: 10_000 }).toContain(`${url}/alive`);
    // Those of the address have their share, and no more.
    expect(posted.filter((target) => target.includes('dead'))).toHaveLength(10);
  });
});
