import { randomUUID } from 'node:crypto';
import {
  type CallToolResult,
  Client,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import {
  type ControlledModel,
  type ModelTurn,
  startControlledModel,
} from './support/controlled-model.js';
import { type ClusterHost, startHosts } from './support/host-cluster.js';
import { openSession } from './support/stream.js';
import { bearer } from './support/surface-host.js';
import { createTestDatabase, type TestDatabase } from './support/test-database.js';
import { TestUser } from './support/user.js';

let database: TestDatabase;
let model: ControlledModel;
let hosts: ClusterHost[] = [];
beforeAll(async () => {
  database = await createTestDatabase('postgres');
  model = await startControlledModel();
  const env = { ...database.env, ...model.env, RESUME_TURNS: 'true', TURNS_PER_USER: '20' };
  hosts = await startHosts(2, { env });
});
afterAll(async () => {
  for (const host of hosts) await host.close();
  model?.close();
  await database?.drop();
});

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
type Json = any;

/** The server-sent events of a reply while they arrive. */
class Live {
  readonly events: Json[] = [];
  readonly ids: number[] = [];
  readonly ended: Promise<void>;

  constructor(reply: Promise<Response>) {
    this.ended = reply.then(async ({ status, body }) => {
      expect(status).toBe(200);
      let rest = '';
      for await (const text of body?.pipeThrough(new TextDecoderStream()) ?? []) {
        const lines = (rest + text).split('\n');
        rest = lines.pop() ?? '';
        for (const line of lines) this.add(line);
      }
    });
  }

  /** What its client shows. */
  get text(): string {
    return this.events
      .map(({ delta, choices }) => delta ?? choices?.[0]?.delta.content ?? '')
      .join('');
  }

  async until(text: string): Promise<void> {
    await Promise.race([this.ended, expect.poll(() => this.text, { timeout: 30_000 }).toBe(text)]);
    expect(this.text).toBe(text);
  }

  private add(line: string): void {
    if (line.startsWith('id: ')) this.ids.push(Number(line.slice('id: '.length)));
    if (line.startsWith('data: {')) this.events.push(JSON.parse(line.slice('data: '.length)));
  }
}

const readJson = async (reply: Promise<Response>): Promise<Json> => (await reply).json();
const untilAll = (streams: readonly Live[], text: string) =>
  Promise.all(streams.map((live) => live.until(text)));

/** The next calls of the model, with the messages that they answer. */
async function takeSteps(count: number) {
  const steps: (readonly [message: string, ModelTurn])[] = [];
  while (steps.length < count) {
    const step = await model.next();
    const asked = step.body.messages.findLast(({ role }: Json) => role === 'user');
    steps.push([asked.content, step]);
  }
  return steps;
}

/** Those whose second attempt says something else. */
const CHANGED: readonly string[] = ['ai-sdk', 'streamed', 'mcp'];

function continueTurn(message: string, step: ModelTurn): void {
  if (message === 'asking') step.call({ name: 'get_weather', input: { city: 'Bern' } });
  else if (message !== 'canceled')
    step.answer(CHANGED.includes(message) ? 'It failed.' : 'I will act.');
}

const TOOL = { type: 'function', name: 'get_weather', parameters: { type: 'object' } };

it('every surface continues an answer in the same stream when its host is killed, also if it changes', {
  timeout: 180_000,
}, async () => {
  const [first, second] = hosts as [ClusterHost, ClusterHost];
  const alice = new TestUser(first);
  const { key } = await createKey(alice);
  const send = (host: ClusterHost, method: string, path: string, body?: object) =>
    fetch(`${host.url}${path}`, {
      method,
      headers: {
        ...bearer(key),
        'content-type': 'application/json',
        'idempotency-key': 'the-same',
      },
      ...(body && { body: JSON.stringify(body) }),
    });

  const agUi = {
    ...{ threadId: randomUUID(), runId: 'r', protocolVersion: '1.0' },
    messages: [{ id: 'm', role: 'user', content: 'ag-ui' }],
  };
  const parts = [{ type: 'text', text: 'ai-sdk' }];
  const chat = { id: randomUUID(), messages: [{ id: 'm', role: 'user', parts }] };
  const completion = {
    ...{ model: 'default', stream: true, metadata: { session_id: await openSession(alice) } },
    messages: [{ role: 'user', content: 'completion' }],
  };
  const respond = (input: string) =>
    readJson(
      send(first, 'POST', '/v1/responses', {
        ...{ model: 'default', background: true, input, tools: [TOOL] },
      }),
    );
  const begun = [
    send(first, 'POST', '/v2/agent/run', agUi),
    send(first, 'POST', '/ui/chat', chat),
    send(first, 'POST', '/v1/chat/completions', completion),
  ].map((reply) => new Live(reply));
  // They end when their host does.
  for (const { ended } of begun) ended.catch(() => undefined);
  const responses = {
    streamed: await respond('streamed'),
    asking: await respond('asking'),
    canceled: await respond('canceled'),
  };
  const session_id = await openSession(alice);
  const asked = alice.request('POST', `/messages/${session_id}`, {
    body: { message: 'mcp', stream: true },
  });
  asked.catch(() => undefined);
  for (const [, step] of await takeSteps(7)) step.say('I will ');
  await untilAll(begun, 'I will ');

  const client = new Client({ name: 'test', version: '1.0.0' });
  const url = new URL(`${second.url}/mcp`);
  await client.connect(
    new StreamableHTTPClientTransport(url, { requestInit: { headers: bearer(key) } }),
  );
  const progress: { readonly message?: string | undefined; readonly progress: number }[] = [];
  const answer = client.callTool(
    { name: 'read_answer', arguments: { session_id } },
    { onprogress: (each) => void progress.push(each), timeout: 120_000 },
  ) as Promise<CallToolResult>;
  const [agUiBegun] = begun as [Live, ...Live[]];
  const { run } = agUiBegun.events[0].metadata;
  const joined = {
    agUi: new Live(send(second, 'POST', '/v2/agent/run', agUi)),
    chat: new Live(send(second, 'GET', `/ui/chat/${chat.id}/stream`)),
    completion: new Live(send(second, 'POST', '/v1/chat/completions', completion)),
    response: new Live(send(second, 'GET', `/v1/responses/${responses.streamed.id}?stream=true`)),
  };
  await untilAll(Object.values(joined), 'I will ');
  await expect.poll(() => progress.at(-1)?.message).toBe('I will ');

  await first.kill();
  for (const [message, step] of await takeSteps(7)) continueTurn(message, step);
  await Promise.all(Object.values(joined).map(({ ended }) => ended));
  expect(joined.agUi.text).toBe('I will act.');
  expect(joined.completion.text).toBe('I will act.');
  // What was shown cannot be taken back.
  expect(joined.chat.text).toBe('I will \n\nIt failed.');
  expect(joined.response.text).toBe('I will \n\nIt failed.');
  expect(joined.agUi.events.at(-1)).toMatchObject({
    type: 'RUN_FINISHED',
    outcome: { type: 'success' },
  });
  expect(joined.chat.events.at(-1)).toMatchObject({ type: 'finish', finishReason: 'stop' });
  expect(joined.completion.events.at(-1).choices[0].finish_reason).toBe('stop');
  expect(joined.response.events.at(-1)).toMatchObject({
    type: 'response.completed',
    response: { output: [{ content: [{ text: 'It failed.' }] }] },
  });
  expect((await answer).structuredContent).toMatchObject({
    status: 'finished',
    answer: 'It failed.',
  });
  const positions = progress.map((each) => each.progress);
  expect(positions).toEqual([...new Set(positions)].toSorted((a, b) => a - b));

  // The run that the client knows is the answer, also after the crash.
  const seen = agUiBegun.ids.at(-1);
  const rest = new Live(send(second, 'GET', `/v2/runs/${run.runId}?after=${seen}`));
  await rest.ended;
  expect(rest.text).toBe('act.');
  const begin = joined.response.events.find(({ delta }) => delta);
  const stream = `/v1/responses/${responses.streamed.id}?stream=true`;
  const others = new Live(send(second, 'GET', `${stream}&starting_after=${begin.sequence_number}`));
  await others.ended;
  expect(others.text).toBe('\n\nIt failed.');
  const [{ id }] = joined.response.events.at(-1).response.output;
  const input = [
    { type: 'item_reference', id },
    { role: 'user', content: 'Why?' },
  ];
  const next = readJson(send(second, 'POST', '/v1/responses', { model: 'default', input }));
  const why = await model.next();
  expect(JSON.stringify(why.body.messages)).toContain('"It failed."');
  why.answer('Who knows.');
  await next;

  const readAsking = () => readJson(send(second, 'GET', `/v1/responses/${responses.asking.id}`));
  await expect.poll(readAsking, { timeout: 30_000 }).toMatchObject({
    status: 'completed',
    output: [{ type: 'function_call', name: 'get_weather' }],
  });
  const running = readJson(send(second, 'GET', `/v1/responses/${responses.canceled.id}`));
  expect(await running).toMatchObject({ status: 'in_progress' });
  const canceled = send(second, 'POST', `/v1/responses/${responses.canceled.id}/cancel`);
  expect(await readJson(canceled)).toMatchObject({ status: 'cancelled' });
  await client.close();
});
