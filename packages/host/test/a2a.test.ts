import { randomUUID } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { Role } from '@a2a-js/sdk';
import { describe, expect, it, vi } from 'vitest';
import {
  bearer,
  get,
  Reader,
  said,
  say,
  send,
  state,
  stream,
  text,
  useA2aHost,
} from './support/a2a.js';

const test = await useA2aHost();

it('GET /.well-known/agent-card.json describes the oracle', async () => {
  const reply = await fetch(`${test.host.url}/.well-known/agent-card.json`);
  expect(reply.status).toBe(200);
  const card = await reply.json();
  expect(card).toMatchObject({
    name: expect.any(String),
    description: 'Knows the weather.',
    supportedInterfaces: [
      { url: `${test.page}/a2a`, protocolBinding: 'JSONRPC', protocolVersion: '1.0' },
      { url: `${test.page}/a2a`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0' },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    securitySchemes: {
      accessKey: { httpAuthSecurityScheme: { scheme: 'Bearer' } },
      accessKeyHeader: { apiKeySecurityScheme: { location: 'header', name: 'x-api-key' } },
      ucan: { httpAuthSecurityScheme: { bearerFormat: 'UCAN' } },
    },
  });
  expect(card.skills).toContainEqual(
    expect.objectContaining({ id: 'questions', description: 'The plugin questions' }),
  );
  expect(card.skills.map(({ id }: { id: string }) => id)).not.toContain('a2a');
});

describe.each(['JSONRPC', 'HTTP+JSON'])('a client of A2A over %s', (binding) => {
  it('sends a message, waits for the task, and continues its context', async () => {
    const client = await test.connect(bearer(test.key), binding);
    const sent = send(client, say('Hello'));
    (await test.model.next()).answer('Hi.');
    const task = await sent;
    expect([state(task), text(task)]).toEqual(['TASK_STATE_COMPLETED', 'Hi.']);
    expect(task.history.map(({ role }) => role)).toEqual([Role.ROLE_USER]);
    const { contextId } = task;
    const again = send(client, say('Again', { contextId }));
    const step = await test.model.next();
    expect(JSON.stringify(step.body.messages)).toContain('Hi.');
    step.answer('Still here.');
    const second = await again;
    expect([second.contextId, text(second)]).toEqual([contextId, 'Still here.']);
    expect(second.id).not.toBe(task.id);
    expect(text(await get(client, task.id))).toBe('Hi.');
  });

  it('returns at once if it wants to, and a context keeps the id that the client gave it', async () => {
    const client = await test.connect(test.alice.headers, binding);
    const contextId = `my-${randomUUID()}`;
    const request = say('Long', { contextId }, { returnImmediately: true });
    const task = await send(client, request);
    expect([state(task), task.contextId]).toEqual(['TASK_STATE_WORKING', contextId]);
    const step = await test.model.next();
    // The same message again is the same task.
    expect((await send(client, request)).id).toBe(task.id);
    step.answer('Done.');
    await expect.poll(async () => state(await get(client, task.id))).toBe('TASK_STATE_COMPLETED');
    expect(await get(client, task.id)).toMatchObject({ id: task.id, contextId });
    expect(test.model.arrived).toBe(0);
  });

  it('streams the answer and what the oracle does', async () => {
    const client = await test.connect(bearer(test.key), binding);
    const reader = stream(client, say('Weather?'));
    const begun = reader.until(() => reader.answer === 'Let me ');
    const step = await test.model.next();
    step.say('Let me ');
    await begun;
    step.answer('see.');
    await reader.toEnd();
    expect(reader.answer).toBe('Let me see.');
    expect(reader.states.at(-1)).toBe('TASK_STATE_COMPLETED');
    expect(reader.states[0]).toMatch(/WORKING|SUBMITTED/);
    expect(text(await get(client, reader.task?.id ?? ''))).toBe('Let me see.');
  });

  it('resubscribes after a lost connection, from the beginning or from a position', async () => {
    const client = await test.connect(bearer(test.key), binding);
    const first = stream(client, say('Long'));
    const begun = first.until(() => first.answer === 'One ');
    const step = await test.model.next();
    step.say('One ');
    await begun;
    const id = first.task?.id ?? '';
    await first.leave();
    const second = new Reader(client.client.resubscribeTask({ tenant: '', id }, client.options));
    await second.until(() => second.answer === 'One ');
    const position = await readPosition(id);
    const headers = { ...client.options.serviceParameters, 'last-event-id': position };
    const third = new Reader(
      client.client.resubscribeTask({ tenant: '', id }, { serviceParameters: headers }),
    );
    await third.until(() => third.task !== undefined);
    step.answer('two.');
    expect((await second.toEnd()).answer).toBe('One two.');
    expect((await third.toEnd()).answer).toBe('two.');
    expect(third.states.at(-1)).toBe('TASK_STATE_COMPLETED');
    const ended = new Reader(client.client.resubscribeTask({ tenant: '', id }, client.options));
    await expect(ended.toEnd()).rejects.toThrow(/has ended/);
  });

  it('cancels a task that works, one that waits, and none that has ended', async () => {
    const client = await test.connect(bearer(test.key), binding);
    const cancel = (id: string) =>
      client.client.cancelTask({ tenant: '', id, metadata: {} }, client.options);
    const now = { returnImmediately: true };
    const working = await send(client, say('Long', {}, now));
    const step = await test.model.next();
    step.say('Begun');
    const { contextId } = working;
    const queued = await send(client, say('Next', { contextId }, now));
    expect(state(queued)).toBe('TASK_STATE_SUBMITTED');
    expect(state(await cancel(queued.id))).toBe('TASK_STATE_CANCELED');
    expect(state(await get(client, queued.id))).toBe('TASK_STATE_CANCELED');
    expect(state(await cancel(queued.id))).toBe('TASK_STATE_CANCELED');
    await expect.poll(async () => text(await get(client, working.id))).toBe('Begun');
    expect(state(await cancel(working.id))).toBe('TASK_STATE_CANCELED');
    await step.left;
    expect(state(await get(client, working.id))).toBe('TASK_STATE_CANCELED');
    // Once more changes nothing.
    expect(state(await cancel(working.id))).toBe('TASK_STATE_CANCELED');
    const sent = send(client, say('Short'));
    (await test.model.next()).answer('Done.');
    await expect(cancel((await sent).id)).rejects.toThrow(/has ended/);
    const waiting = send(client, say('Weather?'));
    (await test.model.next()).call({ name: 'ask_city', input: {} });
    const { id } = await waiting;
    expect(state(await cancel(id))).toBe('TASK_STATE_CANCELED');
  });

  it('is asked for input, and answers with the id of the task', async () => {
    const client = await test.connect(bearer(test.key), binding);
    const sent = send(client, say('Weather?'));
    const step = await test.model.next();
    step.say('Where? ');
    step.call({ name: 'ask_city', input: {} });
    const task = await sent;
    expect(state(task)).toBe('TASK_STATE_INPUT_REQUIRED');
    expect(said(task.status?.message)).toBe('Which city?');
    const data = task.status?.message?.parts.find(({ content }) => content?.$case === 'data');
    expect(data?.content?.value).toMatchObject({ kind: 'input_required', id: expect.any(String) });
    const { id: taskId, contextId } = task;
    const reader = stream(client, say('Bern', { taskId, contextId }));
    const read = reader.toEnd();
    const next = await test.model.next();
    expect(next.results.join()).toContain('Bern');
    next.answer('Sunny.');
    await read;
    // The task is the same, though another run continues it.
    expect(reader.task?.id).toBe(taskId);
    expect(reader.answer).toMatch(/^Where\? \s*Sunny\.$/);
    expect([...new Set(reader.states)]).toEqual(['TASK_STATE_WORKING', 'TASK_STATE_COMPLETED']);
    expect(await get(client, taskId)).toMatchObject({ id: taskId, contextId });
    expect(text(await get(client, taskId))).toBe(reader.answer);
    await expect(send(client, say('Basel', { taskId }))).rejects.toThrow(/has ended/);
  });

  it('denies an approval, and cannot give it', async () => {
    const client = await test.connect(test.alice.headers, binding);
    const sent = send(client, say('Pay'));
    (await test.model.next()).call({ name: 'pay', input: {} });
    const { id: taskId, status } = await sent;
    expect(said(status?.message)).toContain(`open ${test.page}/app/ to approve it`);
    for (const parts of [[{ text: 'yes' }], [{ data: { approved: true } }]])
      await expect(send(client, say('', { taskId, parts }))).rejects.toThrow(
        /signature of the user/,
      );
    const denied = send(client, say('', { taskId, parts: [{ data: { approved: false } }] }));
    const step = await test.model.next();
    expect(step.results.join()).toContain('denied');
    step.answer('As you wish.');
    expect(state(await denied)).toBe('TASK_STATE_COMPLETED');
  });

  it('manages push notification configs, and receives the task when it waits and when it ends', async () => {
    const { client, options } = await test.connect(bearer(test.key), binding);
    const token = randomUUID();
    const taskPushNotificationConfig = {
      id: 'mine',
      url: `${test.receiver}/hook`,
      token,
      authentication: { scheme: 'Bearer', credentials: 'secret' },
    };
    const config = { returnImmediately: true, taskPushNotificationConfig };
    const task = await send({ client, options }, say('Weather?', {}, config));
    const taskId = task.id;
    const place = { tenant: '', taskId, id: 'mine' };
    expect(await client.getTaskPushNotificationConfig(place, options)).toMatchObject({
      taskId,
      ...taskPushNotificationConfig,
    });
    const other = { ...place, id: '', url: `${test.receiver}/other`, token: '' };
    const added = await client.createTaskPushNotificationConfig(
      { ...other, authentication: undefined },
      options,
    );
    const list = async () =>
      (
        await client.listTaskPushNotificationConfig(
          { tenant: '', taskId, pageSize: 0, pageToken: '' },
          options,
        )
      ).configs.map(({ id }) => id);
    expect((await list()).sort()).toEqual(['mine', added.id].sort());
    await client.deleteTaskPushNotificationConfig({ ...place, id: added.id }, options);
    expect(await list()).toEqual(['mine']);
    const own = () =>
      test.received.filter(({ headers }) => headers['x-a2a-notification-token'] === token);
    (await test.model.next()).call({ name: 'ask_city', input: {} });
    await expect.poll(() => own().length, { timeout: 30_000 }).toBe(1);
    expect(own()[0]?.body.task).toMatchObject({
      id: taskId,
      status: { state: 'TASK_STATE_INPUT_REQUIRED' },
    });
    const answered = send({ client, options }, say('Bern', { taskId }));
    (await test.model.next()).answer('Sunny.');
    await answered;
    await expect.poll(() => own().length, { timeout: 30_000 }).toBe(2);
    const { headers, body } = own()[1] ?? {};
    expect(body.task).toMatchObject({
      id: taskId,
      contextId: task.contextId,
      status: { state: 'TASK_STATE_COMPLETED' },
      artifacts: [{ parts: [{ text: 'Sunny.' }] }],
    });
    expect(headers).toMatchObject({
      'content-type': 'application/a2a+json',
      authorization: 'Bearer secret',
      'webhook-id': expect.stringMatching(/^msg_/),
      'webhook-signature': expect.stringMatching(/^v1a,/),
    });
  });
});

it('the example in docs/surfaces/a2a.md works', async () => {
  const page = readFileSync('docs/surfaces/a2a.md', 'utf8');
  const [, code = ''] = /```js\n(.*?)```/s.exec(page) ?? [];
  mkdirSync('test-output', { recursive: true });
  const file = resolve(`test-output/a2a-example-${randomUUID()}.mjs`);
  writeFileSync(file, code);
  vi.stubEnv('ORACLE_URL', test.host.url);
  vi.stubEnv('ORACLE_KEY', test.key);
  const log = vi.spyOn(console, 'log').mockImplementation(() => {});
  try {
    const ended = import(file);
    (await test.model.next()).answer('Hello, too.');
    (await test.model.next()).answer('The same.');
    await ended;
    expect(log.mock.calls.flat()).toEqual(['Hello, too.', 'The same.']);
  } finally {
    log.mockRestore();
    vi.unstubAllEnvs();
    rmSync(file);
  }
});

it('a message without a context that is sent again finds its task', async () => {
  const client = await test.connect(bearer(test.key));
  const request = say('Once');
  const first = send(client, request);
  (await test.model.next()).answer('Once.');
  const { id, contextId } = await first;
  expect(await send(client, request)).toMatchObject({ id, contextId });
  expect(test.model.arrived).toBe(0);
});

it('several questions are answered by their ids, together or one after the other', async () => {
  const client = await test.connect(test.alice.headers);
  const sent = send(client, say('Both'));
  (await test.model.next()).call({ name: 'ask_city', input: {} }, { name: 'confirm', input: {} });
  const task = await sent;
  const { id: taskId } = task;
  const asked = (task.status?.message?.parts ?? []).flatMap(({ content }) =>
    content?.$case === 'data' ? [content.value] : [],
  );
  expect(asked.map(({ kind }) => kind).sort()).toEqual(['confirmation', 'input_required']);
  const answer = (kind: string, value: unknown) => ({
    data: { id: asked.find((each) => each.kind === kind)?.id, value },
  });
  await expect(send(client, say('Bern', { taskId }))).rejects.toThrow(/open questions/);
  const first = await send(
    client,
    say('', { taskId, parts: [answer('input_required', { city: 'Bern' })] }),
  );
  expect(state(first)).toBe('TASK_STATE_INPUT_REQUIRED');
  expect(said(first.status?.message)).toBe('Are you sure?');
  const second = send(client, say('', { taskId, parts: [answer('confirmation', true)] }));
  const step = await test.model.next();
  expect(step.results.join()).toContain('Bern');
  step.answer('Done.');
  expect(state(await second)).toBe('TASK_STATE_COMPLETED');
});

it('a file of a message is attached to it and stored for its user', async () => {
  const client = await test.connect(bearer(test.key));
  const raw = Buffer.from('The harvest of 2031 was 42 tons.').toString('base64');
  const parts = [{ text: 'How much?' }, { raw, filename: 'notes.txt', mediaType: 'text/plain' }];
  const sent = send(client, say('', { parts }));
  const step = await test.model.next();
  // Its text follows if it has been read in time.
  expect(JSON.stringify(step.body.messages)).toContain('notes.txt');
  step.answer('42 tons.');
  await sent;
  const { files } = (await test.alice.request('GET', '/files')).body;
  expect(files).toContainEqual(expect.objectContaining({ name: 'notes.txt' }));
  const url = say('', { parts: [{ url: 'http://10.0.0.1/a.txt' }] });
  await expect(send(client, url)).rejects.toThrow(/10\.0\.0\.1 could not be read/);
});

/** The position of the last event of a task, as its server-sent events have it. */
async function readPosition(id: string): Promise<string> {
  const reply = await fetch(`${test.host.url}/a2a/tasks/${id}:subscribe`, {
    method: 'POST',
    headers: { ...bearer(test.key), 'a2a-version': '1.0' },
  });
  let position = '';
  let buffer = '';
  for await (const chunk of reply.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    buffer += chunk;
    for (const [, id = '', data = ''] of buffer.matchAll(/id: (\S+)\ndata: (.*)\n\n/g))
      if (data.includes('"One ')) position = id;
    if (position) break;
  }
  return position;
}
