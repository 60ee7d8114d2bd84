import { defineTool } from '@sibyl/plugin-kit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createKey } from './support/access-key.js';
import { type ControlledModel, startControlledModel } from './support/controlled-model.js';
import { useHostPair } from './support/host-pair.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

let model: ControlledModel;
const pair = useHostPair(async () => {
  model = await startControlledModel();
  return { plugins: [ownTools], env: model.env };
});
afterAll(() => model.close());

const inputSchema = { type: 'object' };
const ownTools = testPlugin('own-tools', {
  getTools: () => [
    defineTool({ name: 'add', description: 'Adds.', inputSchema, run: () => 3 }),
    defineTool({
      name: 'pay',
      description: 'Pays.',
      inputSchema,
      needsApproval: true,
      run: () => 'paid',
    }),
  ],
});

let alice: TestUser;
let key = '';
beforeAll(async () => {
  alice = new TestUser(pair.a);
  key = (await createKey(alice)).key;
});

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
async function post(path: string, body: object, { url } = pair.a): Promise<any> {
  const reply = await fetch(`${url}/v1${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'default', ...body }),
  });
  return { status: reply.status, ...(await reply.json()) };
}

const parameters = { type: 'object', required: ['city'] };
const functions = ['get_weather', 'final_result'].map((name) => ({ name, parameters }));
const tools = functions.map((given) => ({ type: 'function', function: given }));
const named = (name: string) => ({ type: 'function', function: { name } });
const user = { role: 'user', content: 'Weather?' };
const input = { city: 'Bern' };

/** Asks in a chat completion, or sends the results of one. */
const ask = (tool_choice: unknown, given: readonly object[] = [], host = pair.a) =>
  post('/chat/completions', { messages: [user, ...given], tools, tool_choice }, host);

/** The messages of an answer with calls, and of their results. */
async function answerCalls(reply: ReturnType<typeof ask>) {
  const [{ message }] = (await reply).choices;
  return [
    message,
    ...message.tool_calls.map(({ id }: { id: string }) => {
      return { role: 'tool', tool_call_id: id, content: 'Sunny' };
    }),
  ];
}

describe('tool_choice of POST /v1/chat/completions', () => {
  it('required holds until the model has called a function of the client, not for its answer', async () => {
    const first = ask('required');
    const turn = await model.next();
    expect(turn.body.tool_choice).toBe('required');
    turn.call({ name: 'add', input: {} });
    const again = await model.next();
    expect(again.body.tool_choice).toBe('required');
    again.call({ name: 'get_weather', input: {} });
    const invalid = await model.next();
    expect(invalid.results.join()).toContain('does not fit');
    expect(invalid.body.tool_choice).toBe('required');
    invalid.call({ name: 'get_weather', input });
    const messages = await answerCalls(first);
    const second = ask(undefined, messages);
    const last = await model.next();
    expect(last.body).not.toHaveProperty('tool_choice');
    expect(last.tools).toContain('get_weather');
    last.answer('Sunny.');
    expect((await second).choices[0].message.content).toBe('Sunny.');
  });

  it('applies to what follows the results, also at another host', async () => {
    const first = ask('required');
    const turn = await model.next();
    turn.call({ name: 'get_weather', input }, { name: 'get_weather', input: { city: 'Rome' } });
    const given = await answerCalls(first);
    const second = ask(named('final_result'), given, pair.b);
    const forced = await model.next();
    expect(forced.results).toEqual(['"Sunny"', '"Sunny"']);
    expect(forced.body.tool_choice).toEqual(named('final_result'));
    forced.call({ name: 'final_result', input });
    const more = [...given, ...(await answerCalls(second))];
    const third = ask('none', more);
    const last = await model.next();
    expect(last.body).not.toHaveProperty('tool_choice');
    expect(last.tools).toContain('add');
    expect(last.tools).not.toContain('final_result');
    last.answer('Sunny.');
    expect((await third).choices[0].message.content).toBe('Sunny.');
  });

  it('required holds after a pause for something else', async () => {
    const first = ask('required');
    (await model.next()).call({ name: 'pay', input: {} });
    await first;
    const [{ id }] = (await alice.request('GET', '/approvals')).body.approvals;
    const denied = await alice.request('POST', `/approvals/${id}`, { body: { decision: 'deny' } });
    expect(denied.status).toBe(200);
    const turn = await model.next();
    expect(turn.body.tool_choice).toBe('required');
    turn.answer('No.');
  });

  it('forces the named function in the first step', async () => {
    const first = ask(named('get_weather'));
    const turn = await model.next();
    expect(turn.body.tool_choice).toEqual(named('get_weather'));
    turn.call({ name: 'get_weather', input });
    expect((await first).choices[0].finish_reason).toBe('tool_calls');
  });

  it('allowed_tools offers only these functions', async () => {
    const allowed = { mode: 'required', tools: [named('final_result')] };
    const first = ask({ type: 'allowed_tools', allowed_tools: allowed });
    const turn = await model.next();
    expect(turn.body.tool_choice).toBe('required');
    expect(turn.tools).toEqual(expect.arrayContaining(['add', 'final_result']));
    expect(turn.tools).not.toContain('get_weather');
    turn.call({ name: 'final_result', input });
    expect((await first).choices[0].finish_reason).toBe('tool_calls');
  });

  it('does not force a tool of the host that has the name of a function', async () => {
    const messages = [user];
    const given = { messages, tools: [{ type: 'function', function: { name: 'add' } }] };
    const first = post('/chat/completions', { ...given, tool_choice: named('add') });
    const turn = await model.next();
    expect(turn.body).not.toHaveProperty('tool_choice');
    turn.answer('Hm.');
    await first;
  });

  it.each([
    [named('unknown'), tools, 'tool_choice: tools has no function unknown'],
    ['required', undefined, 'tool_choice: "required" needs at least one function in tools'],
    [
      { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [named('unknown')] } },
      tools,
      'tool_choice: tools has no function unknown',
    ],
    [
      { type: 'custom', custom: { name: 'x' } },
      tools,
      expect.stringContaining('only tools of type function are supported'),
    ],
  ])('refuses %j', async (tool_choice, offered, message) => {
    const body = { messages: [user], tools: offered, tool_choice };
    const { status, error } = await post('/chat/completions', body);
    expect(status).toBe(400);
    expect(error).toMatchObject({ message, param: 'tool_choice' });
  });
});

describe('tool_choice of POST /v1/responses', () => {
  const flat = functions.map((given) => ({ type: 'function', ...given }));
  const create = (body: object) => post('/responses', { input: 'Weather?', tools: flat, ...body });

  it('forces the named function, and the response repeats the choice', async () => {
    const tool_choice = { type: 'function', name: 'get_weather' };
    const first = create({ tool_choice });
    const turn = await model.next();
    expect(turn.body.tool_choice).toEqual(named('get_weather'));
    turn.call({ name: 'get_weather', input });
    const { id, output, tool_choice: repeated } = await first;
    expect(repeated).toEqual(tool_choice);
    const { call_id } = output[0];
    const result = { type: 'function_call_output', call_id, output: 'Sunny' };
    const second = create({ input: [result], previous_response_id: id, tool_choice: 'required' });
    const next = await model.next();
    expect(next.body.tool_choice).toBe('required');
    next.call({ name: 'final_result', input });
    expect(await second).toMatchObject({ tool_choice: 'required' });
    const mode = { type: 'allowed_tools', mode: 'auto', tools: [tool_choice] };
    const third = create({ tool_choice: mode });
    const last = await model.next();
    expect(last.body).not.toHaveProperty('tool_choice');
    expect(last.tools).not.toContain('final_result');
    last.answer('Sunny.');
    expect((await third).tool_choice).toEqual(mode);
  });

  it('is auto in a response without one, and refuses a function that is not in tools', async () => {
    const first = create({});
    (await model.next()).answer('Sunny.');
    expect((await first).tool_choice).toBe('auto');
    const { status, error } = await create({ tool_choice: { type: 'function', name: 'x' } });
    expect([status, error.param]).toEqual([400, 'tool_choice']);
  });
});
