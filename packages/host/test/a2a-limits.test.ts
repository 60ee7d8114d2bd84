import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DatabaseSync } from 'node:sqlite';
import { type Task, TaskState } from '@a2a-js/sdk';
import { describe, expect, it } from 'vitest';
import {
  bearer,
  get,
  type Headers,
  Reader,
  said,
  say,
  send,
  state,
  stream,
  type TestClient,
  text,
  useA2aHost,
} from './support/a2a.js';
import { createKey } from './support/access-key.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = await useA2aHost();

describe('tasks of others and beyond an access key', () => {
  const start = async (client: TestClient, contextId?: string) => {
    const sent = send(client, say('Hello', contextId ? { contextId } : {}));
    (await test.model.next()).answer('Hi.');
    return sent;
  };

  it.each(['JSONRPC', 'HTTP+JSON'])('do not exist over %s', async (binding) => {
    const { id, contextId } = await start(await test.connect(test.alice.headers));
    const session = await openSession(test.alice);
    const narrow = (await createKey(test.alice, { session })).key;
    const strangers = [new TestUser(test.host).headers, bearer(narrow)];
    for (const headers of strangers) {
      const { client, options } = await test.connect(headers, binding);
      const place = { tenant: '', taskId: id, id: 'x' };
      const config = { ...place, url: 'https://example.com', token: '', authentication: undefined };
      const attempts: (() => Promise<unknown>)[] = [
        () => client.getTask({ tenant: '', id }, options),
        () => client.cancelTask({ tenant: '', id, metadata: {} }, options),
        () => new Reader(client.resubscribeTask({ tenant: '', id }, options)).toEnd(),
        () => send({ client, options }, say('Hi', { taskId: id })),
        () => client.createTaskPushNotificationConfig(config, options),
        () => client.getTaskPushNotificationConfig(place, options),
        () =>
          client.listTaskPushNotificationConfig({ ...place, pageSize: 0, pageToken: '' }, options),
        () => client.deleteTaskPushNotificationConfig(place, options),
      ];
      for (const attempt of attempts) {
        const known = await attempt().catch((error: Error) => error);
        expect(known).toMatchObject({ name: 'TaskNotFoundError' });
        expect((known as Error).message).toContain('not found');
      }
    }
    const limited = await test.connect(bearer(narrow), binding);
    await expect(send(limited, say('Hi', { contextId }))).rejects.toThrow(/does not permit/);
    expect((await start(limited)).contextId).toBe(session);
    expect((await start(limited, session)).contextId).toBe(session);
  });

  it('an access key lists no tasks and confirms nothing', async () => {
    const { client, options } = await test.connect(bearer(test.key));
    const list = { tenant: '', contextId: '', status: 0, pageToken: '' };
    await expect(
      client.listTasks({ ...list, statusTimestampAfter: undefined }, options),
    ).rejects.toThrow(/lists no tasks/);
    const sent = send({ client, options }, say('Sure?'));
    (await test.model.next()).call({ name: 'confirm', input: {} });
    const { id: taskId } = await sent;
    await expect(
      send({ client, options }, say('', { taskId, parts: [{ data: true }] })),
    ).rejects.toThrow(/confirms nothing/);
    await client.cancelTask({ tenant: '', id: taskId, metadata: {} }, options);
  });

  it('a key for one turn a day is used up', async () => {
    const { key: once } = await createKey(new TestUser(test.host), { turnsPerDay: 1 });
    const client = await test.connect(bearer(once));
    await start(client);
    await expect(send(client, say('Again'))).rejects.toThrow(/used its turns/);
  });
});

it.each(['JSONRPC', 'HTTP+JSON'])(
  'ListTasks over %s pages, filters and counts',
  async (binding) => {
    const user = new TestUser(test.host);
    const connection = await test.connect(user.headers, binding);
    const { client, options } = connection;
    const tasks: Task[] = [];
    for (const name of ['One', 'Two', 'Three']) {
      const sent = send(connection, say(name, { contextId: name === 'Three' ? 'b' : 'a' }));
      (await test.model.next()).answer(`${name}.`);
      tasks.push(await sent);
    }
    const all = {
      tenant: '',
      contextId: '',
      status: 0,
      pageToken: '',
      statusTimestampAfter: undefined,
    };
    const list = (query: object) => client.listTasks({ ...all, ...query }, options);
    const ids = (page: { tasks: Task[] }) => page.tasks.map(({ id }) => id);
    const [one, two, three] = tasks.map(({ id }) => id);
    const first = await list({ pageSize: 2, includeArtifacts: true });
    expect([ids(first), first.totalSize]).toEqual([[three, two], 3]);
    expect(first.tasks.map(text)).toEqual(['Three.', 'Two.']);
    const second = await list({ pageSize: 2, pageToken: first.nextPageToken });
    expect([ids(second), second.nextPageToken, second.tasks.map(text)]).toEqual([[one], '', ['']]);
    expect(ids(await list({ contextId: 'a' }))).toEqual([two, one]);
    expect(ids(await list({ contextId: 'unknown' }))).toEqual([]);
    expect(ids(await list({ status: TaskState.TASK_STATE_FAILED }))).toEqual([]);
    expect(ids(await list({ status: TaskState.TASK_STATE_AUTH_REQUIRED }))).toEqual([]);
    expect(ids(await list({ status: TaskState.TASK_STATE_COMPLETED }))).toHaveLength(3);
    expect(ids(await list({ statusTimestampAfter: '2100-01-01T00:00:00Z' }))).toEqual([]);
    await expect(list({ pageSize: 101 })).rejects.toThrow(/pageSize/);
  },
);

describe('push notifications', () => {
  const hook = (path: string) => ({
    returnImmediately: true,
    taskPushNotificationConfig: { url: `${test.receiver}${path}`, token: path },
  });

  it('never go to an address inside the network, and such a task ends as any other', async () => {
    const forbidden = createServer().listen(0, '127.0.0.1');
    await once(forbidden, 'listening');
    let connections = 0;
    forbidden.on('connection', () => {
      connections += 1;
    });
    const { port } = forbidden.address() as AddressInfo;
    const client = await test.connect(bearer(test.key));
    const config = { url: `http://127.0.0.1:${port}/`, token: 'inside' };
    const both = { returnImmediately: true, taskPushNotificationConfig: config };
    const task = await send(client, say('Hello', {}, both));
    const allowed = { ...hook('/allowed').taskPushNotificationConfig, id: 'allowed' };
    await client.client.createTaskPushNotificationConfig(
      { tenant: '', taskId: task.id, ...allowed, authentication: undefined },
      client.options,
    );
    (await test.model.next()).answer('Hi.');
    // Both are looked at in the same round.
    await expect
      .poll(
        () =>
          test.received.some(({ headers }) => headers['x-a2a-notification-token'] === '/allowed'),
        {
          timeout: 30_000,
        },
      )
      .toBe(true);
    expect(connections).toBe(0);
    forbidden.close();
    for (const url of ['ftp://example.com', 'nonsense'])
      await expect(
        send(client, say('Hi', {}, { taskPushNotificationConfig: { url } })),
      ).rejects.toThrow(/url/);
    // Nothing was started.
    expect(test.model.arrived).toBe(0);
  });

  it('are sent again, later each time, to a receiver that fails; at most 6 times', async () => {
    const client = await test.connect(bearer(test.key));
    const task = await send(client, say('Hello', {}, hook('/failing')));
    (await test.model.next()).answer('Hi.');
    const attempts = () =>
      test.received.filter(
        ({ headers, body }) =>
          headers['x-a2a-notification-token'] === '/failing' && body.task.id === task.id,
      );
    const database = new DatabaseSync(`${test.host.dataDir}/sibyl.db`, { timeout: 10_000 });
    const [owner, id] = [test.alice.did, task.id];
    const read = () =>
      database
        .prepare('select attempts, due_at from a2a_push_configs where owner = ? and task_id = ?')
        .get(owner, id) ?? {};
    const pauses: number[] = [];
    for (let attempt = 1; attempt <= 6; attempt++) {
      await expect.poll(() => attempts().length, { timeout: 30_000 }).toBe(attempt);
      const expected = attempt === 6 ? { attempts: 0, due_at: null } : { attempts: attempt };
      await expect.poll(read, { timeout: 30_000 }).toMatchObject(expected);
      pauses.push(Number(read().due_at) - Date.now());
      const due = 'update a2a_push_configs set due_at = 0 where due_at is not null and task_id = ?';
      database.prepare(due).run(id);
    }
    database.close();
    // Half a minute, then four times as long each time.
    for (const [i, pause] of pauses.slice(0, 5).entries()) {
      expect(pause).toBeLessThanOrEqual(30_000 * 4 ** i);
      expect(pause).toBeGreaterThan(7_500 * 4 ** i - 10_000);
    }
    expect(new Set(attempts().map(({ headers }) => headers['webhook-id'])).size).toBe(1);
  });

  it('are not sent without their credentials if the key of the oracle has changed', async () => {
    const { client, options } = await test.connect(bearer(test.key));
    const task = await send({ client, options }, say('Hello', {}, hook('/changed')));
    const database = new DatabaseSync(`${test.host.dataDir}/sibyl.db`, { timeout: 10_000 });
    const about = [test.alice.did, 'a2a'];
    database
      .prepare(`update secrets set ciphertext = 'v1.' where owner = ? and plugin = ?`)
      .run(...about);
    (await test.model.next()).answer('Hi.');
    const config = 'select attempts, due_at from a2a_push_configs where owner = ? and task_id = ?';
    await expect
      .poll(() => database.prepare(config).get(test.alice.did, task.id), { timeout: 30_000 })
      .toMatchObject({ attempts: 1 });
    database.close();
    expect(test.received.filter(({ body }) => body.task.id === task.id)).toEqual([]);
    const place = { tenant: '', taskId: task.id, pageSize: 0, pageToken: '' };
    const { configs } = await client.listTaskPushNotificationConfig(place, options);
    expect(configs).toMatchObject([{ url: `${test.receiver}/changed`, token: '' }]);
  });

  it('a task has at most 10 configs', async () => {
    const { client, options } = await test.connect(bearer(test.key));
    const task = await send({ client, options }, say('Hello', {}, { returnImmediately: true }));
    const add = (id: string) =>
      client.createTaskPushNotificationConfig(
        {
          tenant: '',
          taskId: task.id,
          id,
          url: 'https://example.com',
          token: '',
          authentication: undefined,
        },
        options,
      );
    for (let i = 0; i < 10; i++) await add(`${i}`);
    await add('9');
    const database = new DatabaseSync(`${test.host.dataDir}/sibyl.db`, { timeout: 10_000 });
    const countSecrets = () =>
      database
        .prepare("select count(*) as count from secrets where owner = ? and plugin = 'a2a'")
        .get(test.alice.did)?.count;
    const before = countSecrets();
    await expect(add('10')).rejects.toThrow(/at most 10/);
    // Nothing of a refused config is kept.
    expect(countSecrets()).toBe(before);
    database.close();
    (await test.model.next()).answer('Hi.');
  });

  it('end with the access key of the client that wants them', async () => {
    const { key, id } = await createKey(test.alice);
    const tokens = () => test.received.map(({ headers }) => headers['x-a2a-notification-token']);
    // A task of the user, which the key did not start: revoking the key does not end it.
    const own = await test.connect(test.alice.headers);
    const task = await send(own, say('Hello', {}, { returnImmediately: true }));
    const { client, options } = await test.connect(bearer(key));
    const config = { tenant: '', taskId: task.id, authentication: undefined };
    await client.createTaskPushNotificationConfig(
      { ...config, ...hook('/revoked').taskPushNotificationConfig, id: 'a' },
      options,
    );
    await own.client.createTaskPushNotificationConfig(
      { ...config, ...hook('/kept').taskPushNotificationConfig, id: 'b' },
      own.options,
    );
    expect((await test.alice.request('DELETE', `/keys/${id}`)).status).toBe(200);
    (await test.model.next()).answer('Secret.');
    await expect.poll(tokens, { timeout: 30_000 }).toContain('/kept');
    const place = { tenant: '', taskId: task.id, pageSize: 0, pageToken: '' };
    const listConfigs = async () =>
      (await own.client.listTaskPushNotificationConfig(place, own.options)).configs.map(
        (each) => each.id,
      );
    await expect.poll(listConfigs, { timeout: 30_000 }).toEqual(['b']);
    expect(tokens()).not.toContain('/revoked');
  });
});

describe('errors of A2A', () => {
  const post = (path: string, body: unknown, headers: Headers = {}) =>
    fetch(`${test.host.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'a2a-version': '1.0', ...headers },
      body: JSON.stringify(body),
    });
  const rpc = (method: string, params: unknown) => ({ jsonrpc: '2.0', id: 7, method, params });

  it('without a valid key are 401 with WWW-Authenticate in the format of each binding', async () => {
    for (const headers of [{}, bearer('nonsense')]) {
      const reply = await post('/a2a', rpc('GetTask', { id: 'x' }), headers);
      expect([reply.status, reply.headers.get('www-authenticate')]).toEqual([401, 'Bearer']);
      expect(await reply.json()).toMatchObject({ jsonrpc: '2.0', error: { code: -32000 } });
      const rest = await post('/a2a/message:send', {}, headers);
      expect([rest.status, await rest.json()]).toEqual([
        401,
        { error: expect.objectContaining({ code: 401, status: 'UNAUTHENTICATED' }) },
      ]);
    }
  });

  it('name the version, unknown methods and what is wrong with a message', async () => {
    const as = bearer(test.key);
    const old = await post('/a2a', rpc('GetTask', { id: 'x' }), { ...as, 'a2a-version': '' });
    expect(await old.json()).toMatchObject({ id: 7, error: { code: -32009 } });
    const rest = await post('/a2a/message:send', {}, { ...as, 'a2a-version': '0.3' });
    expect([rest.status, (await rest.json()).error.details[0].reason]).toEqual([
      400,
      'VERSION_NOT_SUPPORTED',
    ]);
    const unknown = await post('/a2a', rpc('Nope', {}), as);
    expect(await unknown.json()).toMatchObject({ id: 7, error: { code: -32601 } });
    for (const message of [
      undefined,
      {},
      { messageId: 'm' },
      { messageId: 'm', parts: [{ text: ' ' }] },
    ]) {
      const reply = await post('/a2a', rpc('SendMessage', { message }), as);
      expect(await reply.json()).toMatchObject({ id: 7, error: { code: -32602 } });
      expect((await post('/a2a/message:send', { message }, as)).status).toBe(400);
    }
    const streamed = await post('/a2a', rpc('SendStreamingMessage', { message: {} }), as);
    expect(await streamed.json()).toMatchObject({ id: 7, error: { code: -32602 } });
    const extended = await post('/a2a', rpc('GetExtendedAgentCard', {}), as);
    expect(await extended.json()).toMatchObject({ error: { code: -32004 } });
    const model = {
      message: { messageId: 'm', parts: [{ text: 'Hi' }] },
      metadata: { model: 'no' },
    };
    expect(await (await post('/a2a', rpc('SendMessage', model), as)).json()).toMatchObject({
      error: { code: -32602, message: expect.stringContaining('model') },
    });
    expect((await post('/a2a/message:nope', {}, as)).status).toBe(400);
    const missing = await post('/a2a', rpc('GetTask', { id: '' }), as);
    expect(await missing.json()).toMatchObject({ error: { code: -32602 } });
    expect((await post('/a2a/tasks/%09:cancel', {}, as)).status).toBe(404);
  });

  it('a failed turn is a failed task that says why', async () => {
    const client = await test.connect(bearer(test.key));
    const reader = stream(client, say('Hi'));
    const read = reader.toEnd();
    const step = await test.model.next();
    step.say('Begun');
    step.fail({ message: 'broken', code: 'invalid_request_error', type: 'invalid_request_error' });
    await read;
    expect(reader.states.at(-1)).toBe('TASK_STATE_FAILED');
    expect(reader.notes.at(-1)).not.toBe('');
    const task = await get(client, reader.task?.id ?? '');
    expect([state(task), said(task.status?.message)]).toEqual([
      'TASK_STATE_FAILED',
      reader.notes.at(-1),
    ]);
  });

  it('browsers may send the headers of A2A', async () => {
    for (const path of [
      '/a2a',
      '/a2a/message:send',
      '/a2a/tasks/x:cancel',
      '/.well-known/agent-card.json',
    ]) {
      const reply = await fetch(`${test.host.url}${path}`, {
        method: 'OPTIONS',
        headers: {
          origin: 'https://app.example',
          'access-control-request-method': 'POST',
          'access-control-request-headers': 'a2a-version,authorization',
        },
      });
      expect(reply.headers.get('access-control-allow-headers')).toContain('a2a-version');
    }
  });

  it('bodies of application/a2a+json are read', async () => {
    const headers = { ...bearer(test.key), 'content-type': 'application/a2a+json' };
    const message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text: 'Hi' }] };
    const sent = post('/a2a/message:send', { message }, headers);
    (await test.model.next()).answer('Hello.');
    const reply = await sent;
    expect([reply.status, reply.headers.get('content-type')]).toEqual([
      200,
      'application/a2a+json',
    ]);
    expect((await reply.json()).task.artifacts[0].parts[0].text).toBe('Hello.');
  });
});
