import { type Approval, buildDecisionClaims, type JsonObject } from '@sibyl/protocol';
import { mintDelegation } from '@sibyl/ucan';
import { expect, it } from 'vitest';
import { bearer, useSurfaceHost } from './support/surface-host.js';

const test = useSurfaceHost({ env: { APPROVALS: 'read_secret' } });

async function post(path: string, body: object) {
  const reply = await fetch(test.host.url + path, {
    method: 'POST',
    headers: { ...bearer(test.key), 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  return { status: reply.status, text: await reply.text() };
}

/** The JSON of every event of a stream. */
const readEvents = async (reply: Promise<{ text: string }>) =>
  (await reply).text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice('data: '.length)));

async function approveAll(args?: JsonObject) {
  const { did } = test.host;
  const { approvals } = (await test.alice.request('GET', '/approvals')).body;
  for (const { id, args: originalArgs } of approvals as Approval[]) {
    const nb = await buildDecisionClaims({ id, decision: 'approve', originalArgs, args });
    const { ok } = mintDelegation({
      signer: test.alice.signer,
      audience: did,
      capabilities: [{ can: 'oracle/approve', with: `ixo:oracle:${did}`, nb: { ...nb } }],
      expiration: Math.floor(Date.now() / 1000) + 120,
      nonce: crypto.randomUUID(),
    });
    const body = { decision: 'approve', args, invocation: ok?.token };
    expect((await test.alice.request('POST', `/approvals/${id}`, { body })).status).toBe(200);
  }
}

const parameters = { type: 'object', required: ['city'] };
const declare = (name: string) => ({ name, description: 'Asks', parameters });
const both = [
  { name: 'get_weather', input: { city: 'Bern' } },
  { name: 'pay', input: { to: 'Bob' } },
];

const user = { id: 'u1', role: 'user', parts: [{ type: 'text', text: 'Ask' }] };
const chat = (id: string, name: string, ...more: object[]) => {
  const { description } = declare(name);
  return post('/ui/chat', {
    id,
    trigger: 'submit-message',
    messages: [user, ...more],
    tools: { [name]: { description, parameters } },
  });
};

it('POST /ui/chat lets the client run no call that does not fit its schema', async () => {
  const reply = readEvents(chat('invalid', 'get_weather'));
  (await test.model.next()).call({ name: 'get_weather', input: {} });
  (await test.model.next()).answer('Which city?');
  const calls = (await reply).filter(({ toolCallId }) => toolCallId !== undefined);
  expect(calls).toMatchObject([
    { type: 'tool-input-available', toolName: 'get_weather', providerExecuted: true },
    { type: 'tool-output-error' },
  ]);
});

it('POST /ui/chat lets the client run a call that needs approval once it is approved', async () => {
  const asking = readEvents(chat('secret', 'read_secret'));
  (await test.model.next()).call({ name: 'read_secret', input: { city: 'Bern' } });
  const [{ messageId }, ...asked] = await asking;
  const [call, request] = asked.filter(({ toolCallId }) => toolCallId !== undefined);
  expect(call).toMatchObject({ type: 'tool-input-available', providerExecuted: true });
  expect(request).toMatchObject({ type: 'tool-approval-request' });
  await approveAll();
  const { toolCallId, toolName, input } = call;
  const shown = { type: 'dynamic-tool', toolName, toolCallId, input, state: 'approval-requested' };
  const again = chat('secret', 'read_secret', { id: messageId, role: 'assistant', parts: [shown] });
  const calls = (await readEvents(again)).filter((event) => event.toolCallId !== undefined);
  expect(calls).toEqual([{ type: 'tool-input-available', toolName, toolCallId, input }]);
});

const run = (threadId: string, messages: readonly object[], more: object = {}) =>
  post('/v2/agent/run', {
    threadId,
    runId: crypto.randomUUID(),
    protocolVersion: '1.0',
    messages: [{ id: 'u1', role: 'user', content: 'Ask' }, ...messages],
    tools: [declare('get_weather')],
    ...more,
  });

const outcome = async (reply: ReturnType<typeof run>) => (await readEvents(reply)).at(-1)?.outcome;
const result = (toolCallId: string) => ({ id: 't1', role: 'tool', toolCallId, content: 'Sunny' });

it('POST /v2/agent/run lets the client run a call with the input that the user has edited, under another id', async () => {
  const tools = [declare('read_secret')];
  const first = outcome(run('edited', [], { tools }));
  (await test.model.next()).call({ name: 'read_secret', input: { city: 'Bern' } });
  expect((await first).type).toBe('interrupt');
  await approveAll({ city: 'Rome' });
  const toolCalls = [{ id: 'call_0' }];
  const messages = [{ id: 'a1', role: 'assistant', toolCalls }, result('call_0')];
  const events = await readEvents(run('edited', messages, { tools }));
  const [{ toolCallId }] = events.filter(({ type }) => type === 'TOOL_CALL_START');
  expect(toolCallId).not.toBe('call_0');
  expect(events.find(({ type }) => type === 'TOOL_CALL_ARGS')?.delta).toBe('{"city":"Rome"}');
  expect(events.at(-1)?.outcome.pendingToolCallIds).toEqual([toolCallId]);
  const last = outcome(run('edited', [...messages, result(toolCallId)], { tools }));
  const turn = await test.model.next();
  expect(JSON.parse(turn.results[0] ?? '')).toMatchObject({
    input: { city: 'Rome' },
    result: 'Sunny',
  });
  turn.answer('Done');
  expect(await last).toEqual({ type: 'success' });
});

it('POST /v2/agent/run keeps the result of an approved call that a new message follows', async () => {
  const tools = [declare('read_secret')];
  const first = outcome(run('kept', [], { tools }));
  (await test.model.next()).call({ name: 'read_secret', input: { city: 'Bern' } });
  await first;
  await approveAll();
  const assistant = { id: 'a1', role: 'assistant', toolCalls: [{ id: 'call_0' }] };
  const waiting = await outcome(run('kept', [assistant], { tools }));
  expect(waiting.pendingToolCallIds).toEqual(['call_0']);
  const next = { id: 'u2', role: 'user', content: 'And in Rome?' };
  const last = outcome(run('kept', [assistant, result('call_0'), next], { tools }));
  const turn = await test.model.next();
  const [kept] = turn.body.messages.filter(({ role }: { role: string }) => role === 'tool');
  expect(kept.content).toBe('"Sunny"');
  turn.answer('Done');
  expect(await last).toEqual({ type: 'success' });
});

it('POST /v2/agent/run names the tools that the client has to run once the approval beside them is decided', async () => {
  const first = outcome(run('denied-first', []));
  (await test.model.next()).call(...both);
  const { interrupts } = await first;
  expect(interrupts).toMatchObject([{ reason: 'approval' }]);
  const resume = [{ interruptId: interrupts[0].id, status: 'cancelled' }];
  const calls = [{ id: 'call_0' }, { id: 'call_1' }];
  const assistant = { id: 'a1', role: 'assistant', toolCalls: calls };
  const decided = await outcome(run('denied-first', [assistant], { resume }));
  expect(decided).toEqual({ type: 'success', pendingToolCallIds: ['call_0'] });
  const last = outcome(run('denied-first', [assistant, result('call_0')]));
  const turn = await test.model.next();
  expect(turn.results[0]).toBe('"Sunny"');
  turn.answer('Done');
  expect(await last).toEqual({ type: 'success' });
});

it('POST /v2/agent/run asks for the approval again after the results of tools beside it', async () => {
  const first = outcome(run('result-first', []));
  (await test.model.next()).call(...both);
  const { interrupts } = await first;
  const assistant = {
    id: 'a1',
    role: 'assistant',
    toolCalls: [{ id: 'call_0' }, { id: 'call_1' }],
  };
  const messages = [assistant, result('call_0')];
  expect(await outcome(run('result-first', messages))).toEqual({ type: 'interrupt', interrupts });
  await approveAll();
  (await test.model.next()).answer('Done');
  expect(await outcome(run('result-first', messages))).toEqual({ type: 'success' });
});

it.each(['/v1/chat/completions', '/v1/responses'])(
  'POST %s explains that a decision is missing beside the results of functions',
  async (path) => {
    const isChat = path.endsWith('completions');
    const { name, ...details } = declare('get_weather');
    const tools = [
      { type: 'function', ...(isChat ? { function: { name, ...details } } : { name, ...details }) },
    ];
    const asked = { role: 'user', content: 'Ask' };
    const ask = async (items: readonly object[], more: object = {}) => {
      const body = { model: 'default', tools, [isChat ? 'messages' : 'input']: items, ...more };
      const { status, text } = await post(path, body);
      return { status, body: JSON.parse(text) };
    };
    const first = ask([asked]);
    (await test.model.next()).call(...both);
    const { body } = await first;
    const message = body.choices?.[0].message;
    const call = body.output?.find(({ type }: { type: string }) => type === 'function_call');
    const send = () =>
      isChat
        ? ask([
            asked,
            message,
            { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'Sunny' },
          ])
        : ask([{ type: 'function_call_output', call_id: call.call_id, output: 'Sunny' }], {
            previous_response_id: body.id,
          });
    // Again, it must not receive the calls again: a client would run them for ever.
    for (const refused of [await send(), await send()]) {
      expect(refused.status).toBe(400);
      expect(refused.body.error.message).toMatch(/needs your decision too\. Open http\S+\/app\/,/);
    }
    await approveAll();
    (await test.model.next()).answer('Done');
    expect(JSON.stringify((await send()).body)).toContain('Done');
  },
);

const before1 = { protocolVersion: undefined, tools: [declare('read_secret'), declare('paint')] };
const started = (events: readonly { type: string; toolCallName: string }[]) =>
  events.filter(({ type }) => type === 'TOOL_CALL_START').map((event) => event.toolCallName);

it('POST /v2/agent/run shows clients before 1.0, which run every call that has no result, no call before its approval', async () => {
  const first = readEvents(run('before-1', [], before1));
  (await test.model.next()).call(
    { name: 'paint', input: { city: 'Bern' } },
    { name: 'read_secret', input: { city: 'Bern' } },
    { name: 'add', input: { a: 1, b: 2 } },
  );
  const asked = await first;
  expect(started(asked)).toEqual(['paint', 'add']);
  expect(asked.at(-1)?.outcome).toMatchObject({ interrupts: [{ reason: 'approval' }] });
  const painted = asked.find((event) => event.toolCallName === 'paint')?.toolCallId;
  await approveAll();
  const assistant = { id: 'a1', role: 'assistant', toolCalls: [{ id: painted }] };
  const second = await readEvents(run('before-1', [assistant, result(painted)], before1));
  expect(started(second)).toContain('read_secret');
  expect(started(second)).not.toContain('paint');
  expect(second.at(-1)).not.toHaveProperty('outcome');
});

it('POST /v2/agent/run shows clients before 1.0 a denied call only together with its outcome', async () => {
  const first = readEvents(run('denied-before-1', [], before1));
  (await test.model.next()).call({ name: 'read_secret', input: { city: 'Bern' } });
  const [interrupt] = (await first).at(-1)?.outcome.interrupts ?? [];
  const resume = [{ interruptId: interrupt.id, status: 'cancelled' }];
  const second = readEvents(run('denied-before-1', [], { ...before1, resume }));
  (await test.model.next()).answer('Denied.');
  const types = (await second).map(({ type }) => type);
  expect(types).toEqual(expect.arrayContaining(['TOOL_CALL_START', 'TOOL_CALL_RESULT']));
});
