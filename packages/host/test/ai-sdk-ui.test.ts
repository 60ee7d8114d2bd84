import { defineTool } from '@sibyl/plugin-kit';
import { beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { createKey } from './support/access-key.js';
import { useControlledHost } from './support/controlled-host.js';
import { testPlugin } from './support/plugin.js';
import { TestUser } from './support/user.js';

const paid: string[] = [];
const pay = defineTool({
  name: 'pay',
  description: 'Pays',
  inputSchema: z.object({ to: z.string() }),
  needsApproval: true,
  run: ({ to }) => {
    paid.push(to);
    return 'paid';
  },
});
const lookUp = defineTool({
  name: 'look_up',
  description: 'Looks up',
  inputSchema: z.object({}),
  run: () => ({ found: 1 }),
});
const plugins = [testPlugin('shop', { getTools: () => [pay, lookUp] })];
const test = useControlledHost({ plugins });
let key = '';
beforeEach(async () => {
  key = (await createKey(test.alice)).key;
});

const headers = (as = key) => ({
  authorization: `Bearer ${as}`,
  'content-type': 'application/json',
});

const post = (body: object, as?: string) =>
  fetch(`${test.host.url}/ui/chat`, {
    method: 'POST',
    headers: headers(as),
    body: JSON.stringify({ trigger: 'submit-message', ...body }),
  });

const open = (id: string, method = 'GET', as?: string) =>
  fetch(`${test.host.url}/ui/chat/${id}/stream`, { method, headers: headers(as) });

/** The chunks of a stream, which ends with [DONE]. */
async function read(reply: Response | Promise<Response>) {
  const text = await (await reply).text();
  const data = text.split('\n').flatMap((line) => (line.startsWith('data: ') ? line.slice(6) : []));
  expect(data.at(-1)).toBe('[DONE]');
  return data.slice(0, -1).map((line) => JSON.parse(line));
}

// biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
type Chunks = readonly any[];
const find = (chunks: Chunks, type: string) => chunks.find((chunk) => chunk.type === type);
const join = (chunks: Chunks) => chunks.map(({ delta = '' }) => delta).join('');

const text = (value: string) => ({ type: 'text', text: value });
const user = (id: string, value: string) => ({ id, role: 'user', parts: [text(value)] });
const assistant = (id: string, ...parts: object[]) => ({ id, role: 'assistant', parts });
const tools = { get_weather: { description: 'Weather', parameters: { type: 'object' } } };

describe('POST /ui/chat', () => {
  it('streams the answer, continues the chat by its id, and lists it as a session', async () => {
    const first = post({ id: 'chat-1', messages: [user('u1', 'Hello')], system: 'Rhyme.' });
    const turn = await test.model.next();
    expect(turn.system).toContain('Rhyme.');
    turn.think('Hm');
    turn.say('Hi ');
    turn.answer('there');
    const reply = await first;
    expect(reply.headers.get('x-vercel-ai-ui-message-stream')).toBe('v1');
    const chunks = await read(reply);
    expect(chunks.map(({ type }) => type)).toEqual([
      'start',
      'start-step',
      'reasoning-start',
      'reasoning-delta',
      'reasoning-end',
      'text-start',
      ...chunks.filter(({ type }) => type === 'text-delta').map(({ type }) => type),
      'text-end',
      'finish-step',
      'finish',
    ]);
    expect(join(chunks)).toBe('HmHi there');
    const { messageId, messageMetadata } = chunks[0];
    const messages = [user('u1', 'Hello'), assistant(messageId, text('x')), user('u2', 'More')];
    const second = post({ id: 'chat-1', messages });
    const next = await test.model.next();
    expect(next.body.messages.slice(1)).toMatchObject([
      { content: 'Hello' },
      { content: 'Hi there' },
      { content: 'More' },
    ]);
    next.answer('Bye');
    await read(second);
    const { sessions } = (await test.alice.request('GET', '/sessions')).body;
    expect(sessions[0].sessionId).toBe(messageMetadata.sessionId);
  });

  it.each([
    ['length', 'length'],
    ['content_filter', 'content-filter'],
  ])('reports that the model has ended its answer early: %s', async (given, reason) => {
    const answer = read(post({ id: `early-${given}`, messages: [user('u1', 'Hello')] }));
    const turn = await test.model.next();
    turn.say('Half of');
    turn.finish(given);
    expect(find(await answer, 'finish')).toMatchObject({ finishReason: reason });
  });

  it('answers again with the trigger regenerate-message', async () => {
    const messages = [user('u1', 'Hello')];
    for (const trigger of ['submit-message', 'regenerate-message']) {
      const reply = post({ id: 'regenerate', messages, trigger });
      (await test.model.next()).answer(trigger);
      expect(join(await read(reply))).toBe(trigger);
    }
  });

  it('shows tools of the oracle as executed by the provider', async () => {
    const reply = post({ id: 'tools', messages: [user('u1', 'Look')] });
    (await test.model.next()).call({ name: 'look_up', input: {} });
    (await test.model.next()).answer('Found');
    const chunks = await read(reply);
    const { toolCallId } = find(chunks, 'tool-input-available');
    expect(find(chunks, 'tool-input-available')).toMatchObject({
      toolName: 'look_up',
      providerExecuted: true,
      dynamic: true,
    });
    expect(find(chunks, 'tool-output-available')).toMatchObject({
      toolCallId,
      output: { found: 1 },
    });
    expect(join(chunks)).toBe('Found');
  });

  it('pauses for tools of the client and continues with their results', async () => {
    const asked = user('u1', 'Weather?');
    const first = post({ id: 'client', messages: [asked], tools });
    const step = await test.model.next();
    step.say('I look.');
    step.call({ name: 'get_weather', input: { city: 'Bern' } });
    const chunks = await read(first);
    const call = find(chunks, 'tool-input-available');
    expect(call).toEqual({
      type: 'tool-input-available',
      toolCallId: expect.any(String),
      toolName: 'get_weather',
      input: { city: 'Bern' },
    });
    expect(find(chunks, 'finish').finishReason).toBe('tool-calls');
    const { messageId } = chunks[0];
    const { toolCallId, input } = call;
    const part = { type: 'tool-get_weather', toolCallId, input };
    const done = { ...part, state: 'output-available', output: { degrees: 20 } };
    const messages = [asked, assistant(messageId, { type: 'step-start' }, done)];
    const second = post({ id: 'client', messages, tools });
    const turn = await test.model.next();
    expect(turn.results.join()).toContain('20');
    turn.answer('Warm');
    const rest = await read(second);
    expect(rest[0].messageId).toBe(messageId);
    expect(rest.filter(({ type }) => type.startsWith('tool-'))).toEqual([]);
    expect(join(rest)).toBe('Warm');
    // The same request again joins the run that the first one continued.
    expect(join(await read(post({ id: 'client', messages, tools })))).toBe('Warm');
  });

  it('keeps results of tools that a new message follows', async () => {
    const asked = user('u1', 'Weather?');
    const first = post({ id: 'kept', messages: [asked], tools });
    (await test.model.next()).call({ name: 'get_weather', input: {} });
    const [{ messageId }, ...chunks] = await read(first);
    const { toolCallId, input } = find(chunks, 'tool-input-available');
    const state = 'output-available';
    const done = { type: 'tool-get_weather', toolCallId, input, state, output: { degrees: 20 } };
    const messages = [asked, assistant(messageId, done), user('u2', 'In Rome?')];
    const second = post({ id: 'kept', messages, tools });
    const turn = await test.model.next();
    const [result] = turn.body.messages.filter(({ role }: { role: string }) => role === 'tool');
    expect(result.content).toBe('{"degrees":20}');
    turn.answer('Warm');
    expect(join(await read(second))).toBe('Warm');
  });

  it('asks for approval, lets the client deny, and never approve', async () => {
    const asked = user('u1', 'Pay Bob');
    const first = post({ id: 'approve', messages: [asked] });
    (await test.model.next()).call({ name: 'pay', input: { to: 'Bob' } });
    const chunks = await read(first);
    const { approvalId, toolCallId } = find(chunks, 'tool-approval-request');
    expect(find(chunks, 'tool-input-available').toolCallId).toBe(toolCallId);
    expect(find(chunks, 'data-approval').data).toMatchObject({
      approvalId,
      url: expect.any(String),
    });
    const decide = (approved: boolean) => {
      const approval = { id: approvalId, approved, reason: 'Too much' };
      const part = { type: 'dynamic-tool', toolName: 'pay', toolCallId, input: { to: 'Bob' } };
      const responded = { ...part, state: 'approval-responded', approval };
      const messages = [asked, assistant(chunks[0].messageId, responded)];
      return post({ id: 'approve', messages });
    };
    const approved = await decide(true);
    expect(approved.status).toBe(403);
    expect(await approved.text()).toMatch(/needs your signature: open http/);
    const denied = decide(false);
    const turn = await test.model.next();
    expect(turn.results.join()).toContain('Too much');
    turn.answer('Not paid');
    expect(join(await read(denied))).toBe('Not paid');
    expect(paid).toEqual([]);
  });

  it('reports errors as text, before and within the stream', async () => {
    const invalid = await post({ id: 'x' });
    expect([invalid.status, await invalid.text()]).toEqual([
      400,
      expect.stringMatching(/^messages: /),
    ]);
    expect((await post({ id: 'x', messages: [user('u', 'x')] }, 'unknown')).status).toBe(401);
    const model = await post({ id: 'x', messages: [user('u', 'x')], model: 'no-such' });
    expect(model.status).toBe(400);
    const file = { id: 'u', role: 'user', parts: [{ type: 'file', url: 'data:,' }] };
    expect(await (await post({ id: 'x', messages: [file] })).text()).toContain('data:');
    const reply = post({ id: 'failing', messages: [user('u1', 'Fail')] });
    const turn = await test.model.next();
    turn.say('Begun');
    turn.fail({ message: 'broken', type: 'invalid_request_error', code: 'invalid_request_error' });
    const chunks = await read(reply);
    expect(find(chunks, 'error').errorText).toEqual(expect.any(String));
    expect(find(chunks, 'finish')).toBeUndefined();
  });
});

describe('GET /ui/chat/:id/stream', () => {
  it('answers 204 while nothing runs, and to strangers', async () => {
    expect((await open('never-used')).status).toBe(204);
    const reply = post({ id: 'idle', messages: [user('u1', 'Hello')] });
    const turn = await test.model.next();
    const bob = await createKey(new TestUser(test.host));
    expect((await open('idle', 'GET', bob.key)).status).toBe(204);
    turn.answer('Done');
    await read(reply);
    expect((await open('idle')).status).toBe(204);
  });

  it('resumes a running answer from its beginning, after the client has disconnected', async () => {
    const client = new AbortController();
    const begun = await fetch(`${test.host.url}/ui/chat`, {
      method: 'POST',
      headers: headers(),
      body: JSON.stringify({ id: 'resume', messages: [user('u1', 'Long')], tools }),
      signal: client.signal,
    });
    const turn = await test.model.next();
    turn.say('One ');
    expect(begun.status).toBe(200);
    client.abort();
    const resumed = open('resume');
    expect((await resumed).status).toBe(200);
    turn.say('two ');
    turn.call({ name: 'get_weather', input: {} });
    const chunks = await read(resumed);
    expect(join(chunks)).toBe('One two ');
    // Also without the names of its tools: the client has to run this call.
    const call = find(chunks, 'tool-input-available');
    expect([call.toolName, call.providerExecuted]).toEqual(['get_weather', undefined]);
  });

  it('DELETE stops the answer', async () => {
    const reply = post({ id: 'stop', messages: [user('u1', 'Long')] });
    const turn = await test.model.next();
    turn.say('One');
    expect((await open('stop', 'DELETE')).status).toBe(204);
    await turn.left;
    expect(find(await read(reply), 'abort')).toBeDefined();
  });
});
