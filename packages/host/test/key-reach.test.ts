import { defineTool } from '@sibyl/plugin-kit';
import { describe, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import type { ModelTurn } from './support/controlled-model.js';
import { testPlugin } from './support/plugin.js';
import { bearer, useSurfaceHost } from './support/surface-host.js';
import { upload } from './support/upload.js';

const reaching = testPlugin('reaching', {
  getTools: () =>
    (['session', 'sub-user', undefined] as const).map((reach) =>
      defineTool({
        name: `reaches_${reach ?? 'anything'}`.replace('-', '_'),
        description: 'Reaches.',
        inputSchema: { type: 'object' },
        ...(reach && { reach }),
        run: () => 'done',
      }),
    ),
  getMiddlewares: () => [
    {
      name: 'undeclared',
      onFailure: 'skip',
      wrapModel: (request, next) => next({ ...request, system: `${request.system} UNDECLARED` }),
    },
    {
      name: 'protecting',
      wrapModel: (request, next) => next({ ...request, system: `${request.system} PROTECTED` }),
    },
  ],
});

const test = useSurfaceHost({ plugins: [reaching] });

type Headers = Readonly<Record<string, string>>;

const send = (path: string, body: object, key: string, headers: Headers = {}) =>
  fetch(test.host.url + path, {
    method: 'POST',
    headers: { ...bearer(key), 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });

interface Ask {
  readonly key: string;
  readonly message?: string;
  readonly headers?: Headers;
  readonly more?: object;
}

const chat = ({ key, message = 'Hello', headers, more }: Ask) =>
  send(
    '/v1/chat/completions',
    { model: 'default', messages: [{ role: 'user', content: message }], ...more },
    key,
    headers,
  );

/** The call of the model that a request leads to; throws if the request is refused. */
const nextFor = (reply: Promise<Response>): Promise<ModelTurn> =>
  Promise.race([
    test.model.next(),
    reply.then(async (refused) => {
      throw new Error(await refused.clone().text());
    }),
  ]);

/** Answers a message; returns what the model saw. */
async function ask(asked: Ask): Promise<ModelTurn> {
  const reply = chat(asked);
  const turn = await nextFor(reply);
  turn.answer('Yes.');
  expect((await reply).status).toBe(200);
  return turn;
}

/** Has the model call a tool; returns its result. */
async function call(asked: Ask, name: string, input: object): Promise<string> {
  const reply = chat(asked);
  (await nextFor(reply)).call({ name, input });
  const next = await nextFor(reply);
  next.answer('Done.');
  await reply;
  return next.results.join();
}

const remember = (fact: string) => test.alice.request('POST', '/memory', { body: { text: fact } });

const all = (turn: ModelTurn) => `${turn.system}\n${turn.notes.join('\n')}`;

describe('an access key with the caveat tools', () => {
  it('that is empty has neither tools nor memory nor preferences, but those that its program declares', async () => {
    await remember('The user grows coffee in Kenya.');
    await test.alice.request('PATCH', '/user-preferences', { body: { userName: 'Alice' } });
    const message = 'Where do I grow coffee?';
    const free = await ask({ key: test.key, message });
    expect(free.tools).toEqual(expect.arrayContaining(['recall', 'reaches_anything']));
    expect(all(free)).toContain('Kenya');
    expect(all(free)).toContain('Alice');

    const { key } = await createKey(test.alice, { tools: [] });
    const declared = { type: 'function', function: { name: 'get_weather', parameters: {} } };
    const none = await ask({ key, message, more: { tools: [declared] } });
    expect(none.tools).toEqual(['get_weather']);
    expect(all(none)).not.toMatch(/Kenya|Alice|Memory|UNDECLARED/);
    expect(none.system).toContain('PROTECTED');
  });

  it('permits the named tools only, also after the turn has paused', async () => {
    const { key } = await createKey(test.alice, { tools: ['reaches_anything'] });
    const declared = { type: 'function', function: { name: 'get_weather', parameters: {} } };
    const more = { tools: [declared] };
    const reply = chat({ key, more });
    const turn = await nextFor(reply);
    expect(turn.tools).toEqual(['reaches_anything', 'get_weather']);
    turn.call({ name: 'get_weather', input: {} });
    const { choices } = (await (await reply).json()) as { choices: { message: object }[] };
    const [{ message } = { message: {} }] = choices;
    const [{ id: tool_call_id } = { id: '' }] = (message as { tool_calls: { id: string }[] })
      .tool_calls;
    const messages = [
      { role: 'user', content: 'Hello' },
      message,
      { role: 'tool', tool_call_id, content: 'Sunny' },
    ];
    const second = chat({ key, more: { ...more, messages } });
    const next = await nextFor(second);
    expect(next.results.join()).toContain('Sunny');
    expect(next.tools).toEqual(['reaches_anything', 'get_weather']);
    next.answer('Sunny.');
    await second;
  });

  it('is what a request with X-Background-Task has, without any tool', async () => {
    await remember('The user grows tea.');
    const headers = { 'x-background-task': 'title_generation' };
    const turn = await ask({ key: test.key, message: 'Tea?', headers });
    expect(turn.tools).toEqual([]);
    expect(all(turn)).not.toContain('grows tea');
  });
});

describe('an access key for one session', () => {
  it('has only tools that stay in the session', async () => {
    await remember('The user grows coffee in Kenya.');
    const secret = await upload(test.alice, 'secret.txt', Buffer.from('The code is 4711.'));
    const { sessionId: session } = (await test.alice.request('POST', '/sessions')).body;
    const { key } = await createKey(test.alice, { session });
    const first = await ask({ key, message: 'What do you know about coffee?' });
    expect(first.tools).toEqual(['reaches_session']);
    expect(all(first)).not.toContain('Kenya');

    // A file that is sent in the session is its own.
    const data = Buffer.from('The harvest was 42 tons.').toString('base64');
    const file = { filename: 'notes.txt', file_data: `data:text/plain;base64,${data}` };
    const content = [
      { type: 'text', text: 'Read.' },
      { type: 'file', file },
    ];
    const more = { messages: [{ role: 'user', content }] };
    const second = await ask({ key, more });
    expect(second.tools).toEqual(['reaches_session', 'search_files', 'read_file']);
    expect(await call({ key }, 'read_file', { fileId: secret.fileId })).toContain('no file');
    const found = await call({ key }, 'search_files', { query: 'code harvest' });
    expect(found).toContain('42 tons');
    expect(found).not.toContain('4711');
  });
});

describe('an access key with the caveat user', () => {
  it('gives each person separate memory, preferences and files, apart from those of the user', async () => {
    await remember('The user grows coffee in Kenya.');
    await test.alice.request('PATCH', '/user-preferences', { body: { userName: 'Alice' } });
    const { key } = await createKey(test.alice, { user: '*' });
    const one = { key, more: { user: 'one' } };
    const two = { key, headers: { 'x-openwebui-user-id': 'two' } };
    const learned = await call(one, 'remember', { fact: 'The user breeds llamas in Peru.' });
    expect(learned).toContain('llamas');
    await call(one, 'set_user_preferences', { userName: 'Uno' });

    const again = await ask({ ...one, message: 'What about my llamas and coffee?' });
    expect(all(again)).toContain('llamas');
    expect(all(again)).toContain('Uno');
    expect(all(again)).not.toMatch(/Kenya|Alice|UNDECLARED/);
    expect(again.tools).not.toContain('reaches_anything');
    expect(again.tools).toEqual(expect.arrayContaining(['reaches_sub_user', 'recall']));

    const other = await ask({ ...two, message: 'What about my llamas and coffee?' });
    expect(all(other)).not.toMatch(/llamas in|Kenya|Uno|Alice/);
    const recalled = await call(two, 'recall', { query: 'llamas coffee' });
    expect(recalled).toBe('{"facts":[]}');
    const [{ id }] = (await test.alice.request('GET', '/memory?q=llamas')).body.facts;
    expect(await call(two, 'forget', { id })).toContain('no fact');

    // The user has all of it, and a turn of the user only what is about the user.
    const { facts } = (await test.alice.request('GET', '/memory')).body;
    expect(facts).toMatchObject([{ subUser: 'one' }, { text: 'The user grows coffee in Kenya.' }]);
    const own = await ask({ key: test.key, message: 'What about my llamas and coffee?' });
    expect(all(own)).toContain('Kenya');
    expect(all(own)).not.toContain('llamas in');
  });

  it('gives each person separate conversations', async () => {
    const { key } = await createKey(test.alice, { user: '*' });
    const respond = (user: string, body: object = {}) =>
      send('/v1/responses', { input: 'Hello', user, ...body }, key);
    const reply = respond('one', { store: true });
    (await nextFor(reply)).answer('The secret of one.');
    const { id } = (await (await reply).json()) as { id: string };
    const { sessions } = (await test.alice.request('GET', '/sessions')).body;
    const session_id = sessions[0].sessionId;

    expect((await respond('two', { previous_response_id: id })).status).toBe(404);
    expect((await respond('two', { metadata: { session_id } })).status).toBe(404);
    const get = (user: string) =>
      fetch(`${test.host.url}/v1/responses/${id}`, {
        headers: { ...bearer(key), 'x-sub-user': user },
      });
    expect((await get('two')).status).toBe(404);
    expect((await get('one')).status).toBe(200);
    const next = respond('one', { previous_response_id: id });
    (await nextFor(next)).answer('Yes.');
    expect((await next).status).toBe(200);
    // A turn that the user starts there stays with what is the person's.
    await remember('The user grows coffee in Kenya.');
    const body = { message: 'Coffee?' };
    const owned = test.alice.request('POST', `/messages/${session_id}`, { body });
    const turn = await test.model.next();
    expect(all(turn)).not.toContain('Kenya');
    turn.answer('No.');
    await owned;
  });

  it('does not share threads that have the same id', async () => {
    const keys = await Promise.all(
      ['one', 'two'].map(async (user) => (await createKey(test.alice, { user })).key),
    );
    const run = async (key = '', id = '', content = '') => {
      const messages = [{ id, role: 'user', content }];
      const reply = send('/v2/agent/run', { threadId: 'thread', runId: 'run', messages }, key);
      const turn = await nextFor(reply);
      turn.answer('Yes.');
      await (await reply).text();
      return JSON.stringify(turn.body.messages);
    };
    await run(keys[0], 'a', 'The secret of one.');
    expect(await run(keys[1], 'b', 'Hello')).not.toContain('secret');
    expect(await run(keys[0], 'c', 'Hello')).toContain('secret');
  });

  it('that each request has to name is refused without a name', async () => {
    const { key } = await createKey(test.alice, { user: '*' });
    const reply = await chat({ key });
    expect(reply.status).toBe(400);
    expect((await reply.json()).error.message).toContain('X-Sub-User');
    // Without the caveat, the field means what it means to OpenAI.
    await remember('The user grows coffee in Kenya.');
    const turn = await ask({ key: test.key, message: 'Coffee?', more: { user: { id: 'x' } } });
    expect(all(turn)).toContain('Kenya');
  });
});
