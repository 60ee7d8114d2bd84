import { setTimeout as sleep } from 'node:timers/promises';
import { beforeEach, describe, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { useControlledHost } from './support/controlled-host.js';
import { startControlledModel } from './support/controlled-model.js';
import { startHost } from './support/host.js';
import { openSession } from './support/stream.js';
import { TestUser } from './support/user.js';

const test = useControlledHost();
const MODEL = 'openai-compatible/controlled';
let key = '';
beforeEach(async () => {
  key = (await createKey(test.alice)).key;
});

const request = (
  path: string,
  body?: object,
  { as = key, method = 'POST', headers = {}, signal }: Choice = {},
) =>
  fetch(`${test.host.url}/v1${path}`, {
    method: body ? 'POST' : method,
    headers: { authorization: `Bearer ${as}`, 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  });

interface Choice {
  readonly as?: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
const readJson = async (reply: Response | Promise<Response>): Promise<any> => (await reply).json();

/** The JSON of every event of a stream. */
async function readEvents(reply: Response | Promise<Response>) {
  const text = await (await reply).text();
  return text
    .split('\n')
    .filter((line) => line.startsWith('data: '))
    .map((line) => (line === 'data: [DONE]' ? line : JSON.parse(line.slice('data: '.length))));
}

const user = (content: unknown) => ({ role: 'user', content });
const chat = (fields: object = {}) => ({ model: MODEL, messages: [user('Hello')], ...fields });
const countSessions = async () => (await test.alice.request('GET', '/sessions')).body.total;

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather',
    parameters: { type: 'object', properties: { city: { type: 'string' } } },
  },
};

describe('POST /v1/chat/completions', () => {
  it('answers with the whole conversation and the instructions of the client, and leaves no session', async () => {
    const before = await countSessions();
    const messages = [
      { role: 'system', content: 'Rhyme.' },
      user('First'),
      { role: 'assistant', content: 'Answer one' },
      user('Second'),
    ];
    const reply = readJson(request('/chat/completions', chat({ messages })));
    const turn = await test.model.next();
    expect(turn.system).toContain('Rhyme.');
    expect(turn.body.messages.slice(1)).toMatchObject([
      user('First'),
      { role: 'assistant', content: 'Answer one' },
      user('Second'),
    ]);
    turn.answer('Two.');
    expect(await reply).toMatchObject({
      id: expect.stringMatching(/^chatcmpl-/),
      object: 'chat.completion',
      model: MODEL,
      choices: [{ message: { role: 'assistant', content: 'Two.' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
    });
    expect(await countSessions()).toBe(before);
  });

  it('streams chunks, with the usage if asked, and ends with [DONE]', async () => {
    const reply = request('/chat/completions', {
      ...chat({ stream: true }),
      stream_options: { include_usage: true },
    });
    const turn = await test.model.next();
    turn.say('One ');
    turn.answer('two');
    const events = await readEvents(reply);
    expect((await reply).headers.get('content-type')).toContain('text/event-stream');
    expect(events[0].choices[0].delta).toEqual({ role: 'assistant', content: '' });
    expect(events.map((event) => event.choices?.[0]?.delta.content ?? '').join('')).toBe('One two');
    expect(events.at(-3).choices[0].finish_reason).toBe('stop');
    expect(events.at(-2)).toMatchObject({ choices: [], usage: { total_tokens: 10 } });
    expect(events.at(-1)).toBe('data: [DONE]');
  });

  it.each([true, false])(
    'pauses for tools of the client and continues with their results (stream: %s)',
    async (stream) => {
      const asked = chat({ messages: [user('Weather?')], tools: [weather], stream });
      const first = request('/chat/completions', asked);
      const turn = await test.model.next();
      expect(turn.tools).toContain('get_weather');
      turn.say('I look.');
      turn.call(
        { name: 'get_weather', input: { city: 'Bern' } },
        { name: 'get_weather', input: { city: 'Rome' } },
      );
      const calls = stream
        ? (await readEvents(first)).flatMap((event) => event.choices?.[0]?.delta.tool_calls ?? [])
        : (await readJson(first)).choices[0].message.tool_calls;
      expect(calls).toMatchObject([
        { type: 'function', function: { name: 'get_weather', arguments: '{"city":"Bern"}' } },
        { type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } },
      ]);
      const assistant = { role: 'assistant', content: null, tool_calls: calls };
      const results = calls.map(({ id }: { id: string }, i: number) => {
        return { role: 'tool', tool_call_id: id, content: `${20 + i} degrees` };
      });
      const messages = [user('Weather?'), assistant, ...results];
      const second = readJson(request('/chat/completions', chat({ messages, tools: [weather] })));
      const next = await test.model.next();
      expect(next.results.join()).toContain('20 degrees');
      expect(next.results.join()).toContain('21 degrees');
      next.answer('Warm.');
      expect((await second).choices[0].message.content).toBe('Warm.');
      // The turn no longer waits, so the conversation itself has to do.
      const again = readJson(request('/chat/completions', chat({ messages, tools: [weather] })));
      const repeated = await test.model.next();
      expect(JSON.stringify(repeated.body.messages)).toContain('20 degrees');
      repeated.answer('Still warm.');
      expect((await again).choices[0].message.content).toBe('Still warm.');
    },
  );

  it('keeps a listed session with store, and continues one with metadata.session_id', async () => {
    const before = await countSessions();
    const stored = readJson(request('/chat/completions', chat({ store: true })));
    (await test.model.next()).answer('Stored.');
    await stored;
    expect(await countSessions()).toBe(before + 1);
    const { sessions } = (await test.alice.request('GET', '/sessions')).body;
    const metadata = { session_id: sessions[0].sessionId };
    const messages = [user('ignored, the session has its own history'), user('Next')];
    const reply = readJson(request('/chat/completions', chat({ messages, metadata })));
    const turn = await test.model.next();
    expect(turn.body.messages.slice(1)).toMatchObject([
      user('Hello'),
      { role: 'assistant', content: 'Stored.' },
      user('Next'),
    ]);
    turn.answer('Continued.');
    expect((await reply).choices[0].message.content).toBe('Continued.');
  });

  it('never deletes a listed session, also if the results of its tools arrive without its id', async () => {
    const session_id = await openSession(test.alice);
    const asked = chat({
      messages: [user('Weather?')],
      tools: [weather],
      metadata: { session_id },
    });
    const first = readJson(request('/chat/completions', asked));
    (await test.model.next()).call({ name: 'get_weather', input: { city: 'Bern' } });
    const [{ message: assistant }] = (await first).choices;
    const [{ id: tool_call_id }] = assistant.tool_calls;
    const result = { role: 'tool', tool_call_id, content: '20 degrees' };
    const messages = [user('Weather?'), assistant, result];
    const second = readJson(request('/chat/completions', chat({ messages, tools: [weather] })));
    (await test.model.next()).answer('Warm.');
    expect((await second).choices[0].message.content).toBe('Warm.');
    const { status, body } = await test.alice.request('GET', `/messages/${session_id}`);
    expect(status).toBe(200);
    expect(body.messages.at(-1)).toMatchObject({ content: 'Warm.' });
  });

  it('cancels only its own turn when the client disconnects while it waits for another one', async () => {
    const session_id = await openSession(test.alice);
    const body = { message: 'My own' };
    const own = test.alice.request('POST', `/messages/${session_id}`, { body });
    const running = await test.model.next();
    const client = new AbortController();
    const { signal } = client;
    const queued = chat({ stream: true, metadata: { session_id } });
    const reply = await request('/chat/completions', queued, { signal });
    expect(reply.status).toBe(200);
    client.abort();
    const count = async () =>
      (await test.alice.request('GET', `/messages/${session_id}`)).body.messages.length;
    await expect.poll(count).toBe(1);
    running.answer('Answered.');
    expect(await own).toMatchObject({ status: 200, body: { status: 'finished' } });
    expect(test.model.arrived).toBe(0);
  });

  it('continues an answer that is the last message', async () => {
    const answer = { role: 'assistant', content: 'One, two' };
    const reply = readJson(
      request('/chat/completions', chat({ messages: [user('Count'), answer] })),
    );
    const turn = await test.model.next();
    expect(turn.body.messages.slice(1)).toMatchObject([
      user('Count'),
      answer,
      user(expect.stringMatching(/^Continue your last message/)),
    ]);
    turn.answer(', three');
    expect((await reply).choices[0].message.content).toBe(', three');
  });

  it('cancels the turn when the client disconnects', async () => {
    const client = new AbortController();
    const reply = request('/chat/completions', chat({ stream: true }), { signal: client.signal });
    const turn = await test.model.next();
    turn.say('Long ');
    await reply;
    client.abort();
    await turn.left;
  });

  it.each<[string, object, number, string]>([
    ['an unknown model', chat({ model: 'gpt-x' }), 404, 'invalid_request_error'],
    [
      'no user message',
      chat({ messages: [{ role: 'system', content: 'x' }] }),
      400,
      'invalid_request_error',
    ],
    [
      'an image',
      chat({ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }),
      400,
      'invalid_request_error',
    ],
    ['an unknown session', chat({ metadata: { session_id: 'x' } }), 404, 'invalid_request_error'],
  ])('answers %s with an error in the format of OpenAI', async (_, body, status, type) => {
    const reply = await request('/chat/completions', body);
    expect(reply.status).toBe(status);
    expect(await reply.json()).toEqual({
      error: { message: expect.any(String), type, param: null, code: expect.any(String) },
    });
  });

  it('reports a failure of the model as an error, also within a stream', async () => {
    for (const stream of [false, true]) {
      const reply = request('/chat/completions', chat({ stream }));
      const turn = await test.model.next();
      turn.say('Begun');
      turn.fail({
        message: 'broken',
        code: 'invalid_request_error',
        type: 'invalid_request_error',
      });
      if (stream)
        expect((await readEvents(reply)).at(-1)).toMatchObject({
          error: { type: expect.any(String) },
        });
      else expect((await reply).status).toBeGreaterThanOrEqual(400);
    }
  });

  it('shows reasoning, and finds a model without its provider', async () => {
    const ask = (stream: boolean) =>
      request('/chat/completions', chat({ model: 'controlled', stream }));
    const answer = async () => {
      const turn = await test.model.next();
      turn.think('Hm.');
      turn.answer('Yes.');
    };
    const [whole] = await Promise.all([readJson(ask(false)), answer()]);
    expect(whole.choices[0].message).toMatchObject({ content: 'Yes.', reasoning_content: 'Hm.' });
    const [events] = await Promise.all([readEvents(ask(true)), answer()]);
    const reasoning = events.map((event) => event.choices?.[0]?.delta.reasoning_content ?? '');
    expect(reasoning.join('')).toBe('Hm.');
  });

  it('answers what the provider refuses with 400, which clients do not repeat', async () => {
    const reply = request('/chat/completions', chat());
    const turn = await test.model.next();
    turn.say('Begun');
    turn.fail({ message: 'seed is not allowed', type: 'invalid_request_error', code: 400 });
    expect((await reply).status).toBe(400);
  });

  it('answers a failure that may pass with Retry-After', async () => {
    const reply = request('/chat/completions', chat());
    const turn = await test.model.next();
    turn.say('Begun');
    turn.fail({ message: 'overloaded', type: 'server_error' });
    const { status, headers } = await reply;
    expect(status).toBe(503);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
  });

  it('answers with 503 and Retry-After if the host ends before there is an answer', async () => {
    const model = await startControlledModel();
    const host = await startHost({ env: model.env });
    const { key: as } = await createKey(new TestUser(host));
    const reply = fetch(`${host.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${as}`, 'content-type': 'application/json' },
      body: JSON.stringify(chat()),
    });
    await model.next();
    const closed = host.app.close(0);
    const { status, headers } = await reply;
    expect(status).toBe(503);
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
    await closed;
    model.close();
  });
});

describe('an access key on /v1', () => {
  it('is required: without one, or with an unknown one, the answer is 401', async () => {
    for (const as of ['', 'sk-unknown']) {
      const reply = await request('/models', undefined, { as, method: 'GET' });
      expect(reply.status).toBe(401);
      expect((await reply.json()).error.type).toBe('authentication_error');
    }
  });

  it('that is revoked aborts the turns that were started with it', async () => {
    const { key: as, id } = await createKey(test.alice);
    const reply = readEvents(request('/chat/completions', chat({ stream: true }), { as }));
    const turn = await test.model.next();
    turn.say('Begun');
    await test.alice.request('DELETE', `/keys/${id}`);
    await turn.left;
    expect((await reply).at(-1)).toMatchObject({ error: { code: 'access_revoked' } });
    expect((await request('/models', undefined, { as, method: 'GET' })).status).toBe(401);
  });

  it('that is narrowed to a session uses it and no other', async () => {
    const { sessionId } = (await test.alice.request('POST', '/sessions')).body;
    const other = (await test.alice.request('POST', '/sessions')).body;
    const { key: as } = await createKey(test.alice, { session: sessionId });
    const reply = readJson(request('/chat/completions', chat(), { as }));
    (await test.model.next()).answer('Here.');
    expect((await reply).choices[0].message.content).toBe('Here.');
    const { messages } = (await test.alice.request('GET', `/messages/${sessionId}`)).body;
    expect(messages).toHaveLength(2);
    const metadata = { session_id: other.sessionId };
    const refused = await request('/chat/completions', chat({ metadata }), { as });
    expect([refused.status, (await refused.json()).error.type]).toEqual([403, 'permission_error']);
  });

  it('that is narrowed to a model refuses others', async () => {
    const { key: as } = await createKey(test.alice, { model: MODEL });
    const reply = readJson(request('/chat/completions', chat({ model: 'default' }), { as }));
    (await test.model.next()).answer('Yes.');
    expect((await reply).choices[0].message.content).toBe('Yes.');
    const { key: narrow } = await createKey(test.alice, { model: 'other' });
    const refused = await request('/chat/completions', chat(), { as: narrow });
    expect(refused.status).toBe(403);
  });

  it('with turnsPerDay ends with 429, counted over all requests', async () => {
    const { key: as } = await createKey(test.alice, { turnsPerDay: 2 });
    // A refused request does not count.
    await request('/chat/completions', chat({ metadata: { session_id: 'x' } }), { as });
    for (let i = 0; i < 2; i++) {
      const reply = readJson(request('/chat/completions', chat(), { as }));
      (await test.model.next()).answer('Yes.');
      await reply;
    }
    const refused = await request('/chat/completions', chat(), { as });
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await refused.json()).error.code).toBe('access_key_used_up');
  });
});

describe('/v1/responses', () => {
  const create = (fields: object) => request('/responses', { model: MODEL, ...fields });
  const get = (path: string) => request(path, undefined, { method: 'GET' });

  it('answers, remembers the conversation by previous_response_id, retrieves and deletes', async () => {
    const before = await countSessions();
    const first = readJson(
      create({ input: 'Hello', instructions: 'Rhyme.', metadata: { a: 'b' } }),
    );
    const turn = await test.model.next();
    expect(turn.system).toContain('Rhyme.');
    turn.answer('Hi.');
    const one = await first;
    expect(one).toMatchObject({
      object: 'response',
      status: 'completed',
      metadata: { a: 'b' },
      output: [{ type: 'message', content: [{ type: 'output_text', text: 'Hi.' }] }],
      usage: { total_tokens: 10 },
    });
    const second = readJson(create({ input: [user('Again')], previous_response_id: one.id }));
    const next = await test.model.next();
    expect(next.body.messages.slice(1)).toMatchObject([
      user('Hello'),
      { role: 'assistant', content: 'Hi.' },
      user('Again'),
    ]);
    next.answer('Bye.');
    const two = await second;
    expect(two.previous_response_id).toBe(one.id);
    expect(await readJson(get(`/responses/${one.id}`))).toEqual(one);
    expect(await countSessions()).toBe(before);
    const bob = await createKey(new TestUser(test.host));
    const foreign = await request(`/responses/${one.id}`, undefined, {
      as: bob.key,
      method: 'GET',
    });
    expect(foreign.status).toBe(404);
    for (const { id } of [one, two])
      expect(
        await readJson(request(`/responses/${id}`, undefined, { method: 'DELETE' })),
      ).toMatchObject({ deleted: true });
    expect((await get(`/responses/${one.id}`)).status).toBe(404);
  });

  it('continues after the response that previous_response_id names, also if it has a later one', async () => {
    const ask = async (input: string, previous_response_id?: string) => {
      const headers = { 'idempotency-key': `branch ${input}` };
      const reply = readJson(
        request('/responses', { model: MODEL, input, previous_response_id }, { headers }),
      );
      const turn = await test.model.next();
      turn.answer(`Answer ${input}`);
      const seen = turn.body.messages.slice(1).map(({ content }: { content: string }) => content);
      return { id: (await reply).id, seen };
    };
    const one = await ask('1');
    const two = await ask('2', one.id);
    expect((await ask('3', one.id)).seen).toEqual(['1', 'Answer 1', '3']);
    expect((await ask('4', two.id)).seen).toEqual(['1', 'Answer 1', '2', 'Answer 2', '4']);
    // A repeated request finds its response, although that is the latest now.
    const repeated = { model: MODEL, input: '2', previous_response_id: one.id };
    const headers = { 'idempotency-key': 'branch 2' };
    expect((await readJson(request('/responses', repeated, { headers }))).id).toBe(two.id);
  });

  it('streams events that a client can continue after any of them', async () => {
    const reply = create({ input: 'Hello', stream: true });
    const turn = await test.model.next();
    turn.say('One ');
    await sleep(300);
    turn.answer('two');
    const events = await readEvents(reply);
    const types = events.map(({ type }) => type);
    expect(types.slice(0, 4)).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
    ]);
    expect(types.at(-1)).toBe('response.completed');
    expect(events.map(({ delta = '' }) => delta).join('')).toBe('One two');
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, i) => i));
    const { id } = events[0].response;
    const rest = await readEvents(get(`/responses/${id}?stream=true&starting_after=4`));
    expect(rest).toEqual(events.slice(5));
  });

  it('runs in the background, and can be canceled', async () => {
    const begun = await readJson(create({ input: 'Hello', background: true }));
    expect(['queued', 'in_progress']).toContain(begun.status);
    const turn = await test.model.next();
    expect((await readJson(get(`/responses/${begun.id}`))).status).toBe('in_progress');
    turn.answer('Done.');
    await expect
      .poll(async () => (await readJson(get(`/responses/${begun.id}`))).status, { timeout: 20_000 })
      .toBe('completed');
    const other = await readJson(create({ input: 'Hello', background: true }));
    const running = await test.model.next();
    const canceled = await readJson(request(`/responses/${other.id}/cancel`, {}));
    expect(canceled.status).toBe('cancelled');
    await running.left;
  });

  it('pauses for functions of the client and continues with their outputs', async () => {
    const tools = [{ type: 'function', ...weather.function, strict: false }];
    const first = readJson(create({ input: 'Weather?', tools }));
    (await test.model.next()).call({ name: 'get_weather', input: { city: 'Bern' } });
    const one = await first;
    const [call] = one.output;
    expect(call).toMatchObject({
      type: 'function_call',
      name: 'get_weather',
      arguments: '{"city":"Bern"}',
    });
    const input = [{ type: 'function_call_output', call_id: call.call_id, output: '20 degrees' }];
    const second = readJson(create({ input, previous_response_id: one.id, tools }));
    const next = await test.model.next();
    expect(next.results.join()).toContain('20 degrees');
    next.answer('Warm.');
    expect((await second).output).toMatchObject([
      { type: 'message', content: [{ text: 'Warm.' }] },
    ]);
    // The first response still has its call.
    expect(await readJson(get(`/responses/${one.id}`))).toEqual(one);
  });

  it('refuses what it would lose: conversations, prompts, outputs without their calls', async () => {
    const output = { type: 'function_call_output', call_id: 'call_x', output: 'x' };
    for (const fields of [{ conversation: 'c' }, { prompt: { id: 'p' } }, { input: [output] }])
      expect((await create({ input: 'Hi', ...fields })).status).toBe(400);
  });

  it('keeps outputs of functions that a message of the user follows', async () => {
    const tools = [{ type: 'function', ...weather.function }];
    const first = readJson(create({ input: 'Weather?', tools }));
    const call = { name: 'get_weather', input: {} };
    (await test.model.next()).call(call, call);
    const { id, output } = await first;
    const [{ call_id }] = output;
    const input = [{ type: 'function_call_output', call_id, output: '20 degrees' }, user('Rome?')];
    const second = readJson(create({ input, previous_response_id: id, tools }));
    const next = await test.model.next();
    const results = next.body.messages.filter(({ role }: { role: string }) => role === 'tool');
    expect(results).toMatchObject([
      { content: '"20 degrees"' },
      { content: expect.stringContaining('did not run') },
    ]);
    expect(next.body.messages.at(-1)).toMatchObject(user('Rome?'));
    next.answer('Warm.');
    expect((await second).status).toBe('completed');
  });
});

it('an unknown route of /v1 answers with an error in the format of OpenAI', async () => {
  const reply = await request('/embeddings', { input: 'x' });
  expect(reply.status).toBe(404);
  expect((await reply.json()).error).toMatchObject({ type: 'invalid_request_error' });
  const other = await fetch(`${test.host.url}/unknown`);
  expect(await other.json()).toMatchObject({ statusCode: 404 });
});

describe('reasoning in POST /v1/responses', () => {
  const summary = (text: string) => [{ type: 'summary_text', text }];
  const tools = [{ type: 'function', ...weather.function, strict: false }];
  const create = (fields: object) => request('/responses', { model: MODEL, tools, ...fields });

  /** Thinks, says something, thinks again, and calls a function. */
  async function answer() {
    const turn = await test.model.next();
    turn.think('Hm.');
    turn.say('I look.');
    turn.think('Where?');
    turn.call({ name: 'get_weather', input: { city: 'Bern' } });
  }

  const expected = [
    { type: 'reasoning', id: expect.stringMatching(/^rs_/), summary: summary('Hm.') },
    { type: 'message', content: [{ text: 'I look.' }] },
    { type: 'reasoning', id: expect.stringMatching(/^rs_/), summary: summary('Where?') },
    { type: 'function_call', name: 'get_weather' },
  ];

  it('is a separate item, which may be sent back or referred to', async () => {
    const [one] = await Promise.all([readJson(create({ input: 'Weather?' })), answer()]);
    expect(one.output).toMatchObject(expected);
    const read = request(`/responses/${one.id}`, undefined, { method: 'GET' });
    expect(await readJson(read)).toEqual(one);
    const [thought, said, other, call] = one.output;
    expect(thought.id).not.toBe(other.id);
    const refer = ({ id }: { id: string }) => ({ type: 'item_reference', id });
    const output = { type: 'function_call_output', call_id: call.call_id, output: '20 degrees' };
    const again = [user('Weather?'), refer(thought), said, other];
    const next = readJson(create({ input: [...again, refer(call), output] }));
    (await test.model.next()).answer('Warm.');
    expect((await next).status).toBe('completed');
    const last = readJson(create({ input: [...again, user('Thanks')] }));
    const turn = await test.model.next();
    expect(turn.body.messages.slice(1)).toEqual([
      user('Weather?'),
      { role: 'assistant', content: 'I look.' },
      expect.objectContaining({ role: 'user', content: expect.stringMatching(/^Thanks/) }),
    ]);
    turn.answer('Gladly.');
    expect((await last).status).toBe('completed');
  });

  it('is streamed as summaries', async () => {
    const [events] = await Promise.all([
      readEvents(create({ input: 'Weather?', stream: true })),
      answer(),
    ]);
    const types = events.map(({ type }) => type.replace('response.', ''));
    const reasoning = [
      'output_item.added',
      'reasoning_summary_part.added',
      'reasoning_summary_text.delta',
      'reasoning_summary_text.done',
      'reasoning_summary_part.done',
      'output_item.done',
    ];
    expect(types.slice(2, 8)).toEqual(reasoning);
    expect(events[4]).toMatchObject({ delta: 'Hm.', output_index: 0, summary_index: 0 });
    expect(types.filter((type) => type in { 'reasoning_summary_part.done': 1 })).toHaveLength(2);
    const ended = events.filter(({ type }) => type === 'response.output_item.done');
    const items = ended.toSorted((a, b) => a.output_index - b.output_index).map(({ item }) => item);
    expect(items).toMatchObject(expected);
    expect(events.at(-1).response.output).toEqual(items);
    const path = `/responses/${events[0].response.id}?stream=true&starting_after=1`;
    const again = await readEvents(request(path, undefined, { method: 'GET' }));
    expect(again).toEqual(events.slice(2));
  });
});

describe('GET /v1/models', () => {
  it('lists the models and `default`, and describes one', async () => {
    const get = (path: string) => readJson(request(path, undefined, { method: 'GET' }));
    const { data } = await get('/models');
    expect(data.map(({ id }: { id: string }) => id)).toEqual(['default', MODEL]);
    expect(await get(`/models/${encodeURIComponent(MODEL)}`)).toMatchObject({
      id: MODEL,
      object: 'model',
    });
  });
});

it('CORS of surfaces allows the headers that a browser announces, on their paths only', async () => {
  const preflight = async (path: string) => {
    const headers = {
      origin: 'https://page.example',
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'x-api-key,x-stainless-lang',
    };
    const reply = await fetch(test.host.url + path, { method: 'OPTIONS', headers });
    return reply.headers.get('access-control-allow-headers');
  };
  expect(await preflight('/v1/chat/completions')).toContain('x-stainless-lang');
  expect(await preflight('/v1/responses/x/cancel')).toContain('x-stainless-lang');
  expect(await preflight('/sessions')).not.toContain('x-stainless-lang');
});
