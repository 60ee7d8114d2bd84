import { DatabaseSync } from 'node:sqlite';
import { expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { bearer, useSurfaceHost } from './support/surface-host.js';
import { TestUser } from './support/user.js';

const test = useSurfaceHost();

const post = (path: string, fields: object, key = test.key) =>
  fetch(`${test.host.url}/v1${path}`, {
    method: 'POST',
    headers: { ...bearer(key), 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'default', ...fields }),
  });

const create = (fields: object, key?: string) => post('/responses', fields, key);

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
const readJson = async (reply: Promise<Response>): Promise<any> => (await reply).json();

const user = (content: string) => ({ role: 'user', content });
const refer = ({ id }: { readonly id: string }) => ({ type: 'item_reference', id });

it('POST /v1/responses finds the items of earlier responses that an item_reference names', async () => {
  const tools = [{ type: 'function', name: 'get_weather', parameters: { type: 'object' } }];
  const first = readJson(create({ input: 'Weather?', tools }));
  const turn = await test.model.next();
  turn.say('I look.');
  turn.call({ name: 'get_weather', input: { city: 'Bern' } });
  const [said, call] = (await first).output;
  const output = { type: 'function_call_output', call_id: call.call_id, output: '20 degrees' };
  const asked = [user('Weather?'), refer(said), refer(call), output];
  const second = readJson(create({ input: asked, tools }));
  (await test.model.next()).answer('Warm.');
  const [answer] = (await second).output;
  const input = [...asked, refer(answer), user('Thanks')];
  const third = readJson(create({ input }));
  const next = await test.model.next();
  expect(next.body.messages.slice(1)).toMatchObject([
    user('Weather?'),
    { role: 'assistant', content: 'I look.', tool_calls: [{ function: { name: 'get_weather' } }] },
    { role: 'tool', content: '"20 degrees"' },
    { role: 'assistant', content: 'Warm.' },
    user('Thanks'),
  ]);
  next.answer('Gladly.');
  await third;
  const { key } = await createKey(new TestUser(test.host));
  for (const refused of [
    await create({ input }, key),
    await create({ input: [refer({ id: 'msg_unknown' }), user('Hi')] }),
    await create({ input: [{ type: 'item_reference' }, user('Hi')] }),
  ])
    expect([refused.status, (await refused.json()).error.code]).toEqual([404, 'not_found']);
});

it('POST /v1/responses keeps the order of many references, also of one that is repeated', async () => {
  const said: { readonly id: string }[] = [];
  for (let i = 0; i < 6; i++) {
    const created = readJson(create({ input: `Question ${i}` }));
    (await test.model.next()).answer(`Answer ${i}`);
    said.push(...(await created).output);
  }
  const input = [...said, ...said.slice(0, 1)].flatMap((item) => [user('And?'), refer(item)]);
  const last = readJson(create({ input: [...input, user('Is that all?')] }));
  const next = await test.model.next();
  const order = [0, 1, 2, 3, 4, 5, 0];
  expect(next.body.messages.slice(1)).toMatchObject([
    ...order.flatMap((i) => [user('And?'), { role: 'assistant', content: `Answer ${i}` }]),
    user('Is that all?'),
  ]);
  next.answer('That is all.');
  await last;
});

it('POST /v1/responses refuses references to too much text, also to the same item', async () => {
  const first = readJson(create({ input: 'Write a lot' }));
  (await test.model.next()).answer('word '.repeat(100_000));
  const [said] = (await first).output;
  const refused = await create({ input: [...Array(9).fill(refer(said)), user('Thanks')] });
  expect([refused.status, (await refused.json()).error.message]).toEqual([
    400,
    'The items that are referred to are too long',
  ]);
});

it('POST /v1/responses with store: false keeps nothing once the answer is complete', async () => {
  const tools = [{ type: 'function', name: 'get_weather', parameters: { type: 'object' } }];
  const once = { store: false, tools };
  const countRows = (table: string) => {
    const database = new DatabaseSync(`${test.host.dataDir}/sibyl.db`, { timeout: 10_000 });
    const { count } = database.prepare(`select count(*) as count from ${table}`).get() ?? {};
    database.close();
    return count;
  };
  const count = () => [countRows('openai_api_responses'), countRows('sessions')];
  const before = count();
  const first = readJson(create({ input: 'Weather?', ...once }));
  (await test.model.next()).call({ name: 'get_weather', input: {} });
  const [call] = (await first).output;
  const output = { type: 'function_call_output', call_id: call.call_id, output: '20 degrees' };
  const second = readJson(create({ input: [user('Weather?'), call, output], ...once }));
  (await test.model.next()).answer('Warm.');
  const { id, store } = await second;
  expect(store).toBe(false);
  await expect.poll(count).toEqual(before);
  const gone = await fetch(`${test.host.url}/v1/responses/${id}`, { headers: bearer(test.key) });
  expect(gone.status).toBe(404);
  expect((await create({ input: 'And then?', previous_response_id: id })).status).toBe(404);
  expect((await create({ input: 'Hi', background: true, store: false })).status).toBe(400);
  const stored = readJson(create({ input: 'Hello' }));
  (await test.model.next()).answer('Hi.');
  const previous_response_id = (await stored).id;
  const streamed = create({ input: 'Again', previous_response_id, store: false, stream: true });
  (await test.model.next()).answer('Hi again.');
  expect(await (await streamed).text()).toContain('response.completed');
  const next = readJson(create({ input: 'More', previous_response_id }));
  (await test.model.next()).answer('Yes?');
  expect((await next).status).toBe('completed');
});

it('POST /v1/responses with store: false cancels the turn of a client that disconnects', async () => {
  const leave = new AbortController();
  const body = { model: 'default', input: 'Hello', store: false, stream: true };
  const reply = await fetch(`${test.host.url}/v1/responses`, {
    method: 'POST',
    headers: { ...bearer(test.key), 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: leave.signal,
  });
  const turn = await test.model.next();
  reply.text().catch(() => undefined);
  leave.abort();
  await turn.left;
});

it.each([
  ['length', 'length', 'max_output_tokens'],
  ['content_filter', 'content_filter', 'content_filter'],
])(
  'POST /v1 reports that the model has ended an answer early: %s',
  async (given, chat, response) => {
    const answerPart = async () => {
      const turn = await test.model.next();
      turn.say('Half of');
      turn.finish(given);
    };
    const completion = readJson(post('/chat/completions', { messages: [user('Hello')] }));
    await answerPart();
    expect((await completion).choices).toMatchObject([{ finish_reason: chat }]);
    const created = readJson(create({ input: 'Hello' }));
    await answerPart();
    expect(await created).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: response },
    });
  },
);

it.each([
  ['/chat/completions', { messages: [] }, 'messages'],
  ['/chat/completions', { messages: [{ role: 'stranger', content: 'Hi' }] }, 'messages[0].role'],
  ['/chat/completions', { messages: [user('Hi')], tool_choice: 'required' }, 'tool_choice'],
  ['/chat/completions', { messages: [user('Hi')], functions: [{ name: 'f' }] }, 'functions'],
  ['/chat/completions', { messages: [user('Hi')], modalities: ['audio'] }, 'modalities[0]'],
  ['/chat/completions', { messages: [user('Hi')], audio: { voice: 'alloy' } }, 'audio'],
  ['/responses', { input: 'Hi', text: { format: { type: 'grammar' } } }, 'text.format.type'],
  ['/responses', { input: '' }, 'input'],
  ['/responses', { input: [{ type: 'function_call_output', call_id: 'x', output: 'y' }] }, null],
])('POST /v1%s names the first invalid parameter: %o', async (path, fields, param) => {
  const reply = await post(path, fields);
  expect(reply.status).toBe(400);
  const type = 'invalid_request_error';
  const error = { message: expect.any(String), type, param, code: expect.any(String) };
  expect(await reply.json()).toEqual({ error });
});

it('POST /v1/responses describes the failure of a model as clients expect it', async () => {
  const created = readJson(create({ input: 'Hello' }));
  const type = 'invalid_request_error';
  (await test.model.next()).fail({ message: 'broken', code: type, type });
  const { status, error } = await created;
  expect([status, Object.keys(error).sort()]).toEqual([
    'failed',
    ['code', 'message', 'param', 'type'],
  ]);
  // As `@ai-sdk/openai` reads it.
  expect(error).toMatchObject({ code: 'server_error', type: 'server_error', param: null });
});
