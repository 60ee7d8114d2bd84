import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { HttpAgent, type Message, type RunFinishedEvent, type UserMessage } from '@ag-ui/client';
import { describe, expect, it } from 'vitest';
import { createKey } from '../../../packages/host/test/support/access-key.js';
import { bearer, useSurfaceHost } from '../../../packages/host/test/support/surface-host.js';
import { TestUser } from '../../../packages/host/test/support/user.js';

const test = useSurfaceHost();
const headers = (as = test.key) => bearer(as);

function createAgent(as = test.key) {
  return new HttpAgent({ url: `${test.host.url}/v2/agent/run`, headers: headers(as) });
}

/** Runs the agent; `result` has the events of the run. */
function run(agent: HttpAgent, options: Parameters<HttpAgent['runAgent']>[0] = {}) {
  const events: { type: string; [field: string]: unknown }[] = [];
  const ended = agent.runAgent(options, {
    onEvent: ({ event }) => void events.push(event as never),
  });
  return { ended, events };
}

const say = (agent: HttpAgent, id: string, content: string) =>
  agent.addMessage({ id, role: 'user', content });

const texts = (messages: readonly Message[]) =>
  messages.map(({ role, content }) => `${role}: ${content}`);

const outcome = (events: readonly { type: string }[]) =>
  (events.at(-1) as unknown as RunFinishedEvent).outcome;

const list = async (sessionId: string) =>
  (await test.alice.request('GET', `/messages/${sessionId}`)).body.messages;

/** The events of a stream with their numbers. */
async function readNumbered(reply: Response) {
  const events = (await reply.text()).split('\n\n').filter((event) => event.startsWith('id: '));
  return events.map((event): { number: number; type: string; [field: string]: unknown } => {
    const [id = '', data = ''] = event.split('\n');
    return { number: Number(id.slice('id: '.length)), ...JSON.parse(data.slice('data: '.length)) };
  });
}

const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

/** The ids of the host's run. */
function sessionIn([started]: readonly { [field: string]: unknown }[]) {
  const { run } = (started?.metadata ?? {}) as { run: { sessionId: string; runId: string } };
  return run;
}

describe('HttpAgent and POST /v2/agent/run', () => {
  it('sends images, which become files of the message', async () => {
    const agent = createAgent();
    const source = { type: 'data', value: PIXEL, mimeType: 'image/png' } as const;
    const content: UserMessage['content'] = [
      { type: 'text', text: 'What is this?' },
      { type: 'image', source },
    ];
    agent.addMessage({ id: 'u1', role: 'user', content });
    const { ended, events } = run(agent);
    (await test.model.next()).answer('A pixel.');
    await ended;
    const [question] = await list(sessionIn(events).sessionId);
    expect(question).toMatchObject({
      content: 'What is this?',
      attachments: [{ fileId: expect.any(String), mimetype: 'image/png' }],
    });
  });

  it('streams reasoning, text and tool calls, and continues the thread with its next message', async () => {
    const agent = createAgent();
    say(agent, 'u1', 'Add 1 and 2');
    const first = run(agent);
    const step = await test.model.next();
    step.think('Simple.');
    step.say('Let me see. ');
    step.call({ name: 'add', input: { a: 1, b: 2 } });
    (await test.model.next()).answer('It is 3.');
    await first.ended;
    expect(first.events.map(({ type }) => type)).toEqual([
      'RUN_STARTED',
      'REASONING_START',
      'REASONING_MESSAGE_START',
      'REASONING_MESSAGE_CONTENT',
      'REASONING_MESSAGE_END',
      'REASONING_END',
      'TEXT_MESSAGE_START',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_END',
      'TOOL_CALL_START',
      'TOOL_CALL_ARGS',
      'TOOL_CALL_END',
      'TOOL_CALL_RESULT',
      'TEXT_MESSAGE_START',
      'TEXT_MESSAGE_CONTENT',
      'TEXT_MESSAGE_END',
      'RUN_FINISHED',
    ]);
    expect(outcome(first.events)).toEqual({ type: 'success' });
    expect(texts(agent.messages)).toEqual([
      'user: Add 1 and 2',
      'reasoning: Simple.',
      'assistant: Let me see. ',
      'tool: {"sum":3}',
      'assistant: It is 3.',
    ]);
    say(agent, 'u2', 'Thanks');
    const second = run(agent);
    const next = await test.model.next();
    expect(next.body.messages.at(-1).content).toBe('Thanks');
    next.answer('Gladly.');
    await second.ended;
    expect(sessionIn(second.events).sessionId).toBe(sessionIn(first.events).sessionId);
    expect(await list(sessionIn(first.events).sessionId)).toHaveLength(4);
  });

  it('an edited message begins a branch', async () => {
    const agent = createAgent();
    say(agent, 'e1', 'One');
    const first = run(agent);
    (await test.model.next()).answer('First.');
    await first.ended;
    agent.setMessages([{ id: 'e1', role: 'user', content: 'Uno' }]);
    const second = run(agent);
    const step = await test.model.next();
    step.answer('Primo.');
    await second.ended;
    const { sessionId } = sessionIn(second.events);
    expect(sessionId).toBe(sessionIn(first.events).sessionId);
    expect((await list(sessionId)).map(({ content }: { content: string }) => content)).toEqual([
      'Uno',
      'Primo.',
    ]);
  });

  it("runs the client's own tools: the run ends, and continues with the result", async () => {
    const agent = createAgent();
    say(agent, 't1', 'Make it blue');
    const parameters = { type: 'object', properties: { color: { type: 'string' } } };
    const own = [{ name: 'paint', description: 'Paints the page', parameters }];
    const first = run(agent, { tools: own });
    const step = await test.model.next();
    expect(step.tools).toContain('paint');
    step.call({ name: 'paint', input: { color: 'blue' } });
    await first.ended;
    const call = first.events.find(({ type }) => type === 'TOOL_CALL_START');
    expect(call).toMatchObject({ toolCallName: 'paint' });
    const toolCallId = call?.toolCallId as string;
    expect(outcome(first.events)).toEqual({ type: 'success', pendingToolCallIds: [toolCallId] });
    agent.addMessage({ id: 'r1', role: 'tool', toolCallId, content: 'painted' });
    const second = run(agent, { tools: own });
    const next = await test.model.next();
    expect(next.results).toEqual(['"painted"']);
    next.answer('It is blue now.');
    await second.ended;
    expect(texts(agent.messages).at(-1)).toBe('assistant: It is blue now.');
    expect(agent.messages.filter(({ role }) => role === 'tool')).toHaveLength(1);
  });

  it('POST /v2/agent/run keeps results of tools that a new message follows', async () => {
    const agent = createAgent();
    say(agent, 'k1', 'Make it blue');
    const tools = [{ name: 'paint', description: 'Paints', parameters: { type: 'object' } }];
    const first = run(agent, { tools });
    (await test.model.next()).call({ name: 'paint', input: {} });
    await first.ended;
    const toolCallId = first.events.find(({ type }) => type === 'TOOL_CALL_START')?.toolCallId;
    agent.addMessage({
      id: 'k2',
      role: 'tool',
      toolCallId: toolCallId as string,
      content: 'painted',
    });
    say(agent, 'k3', 'And now red');
    const second = run(agent, { tools });
    const next = await test.model.next();
    const [result] = next.body.messages.filter(({ role }: { role: string }) => role === 'tool');
    expect(result.content).toBe('"painted"');
    next.answer('It is red.');
    await second.ended;
  });

  it('questions interrupt the run, and resume continues it', async () => {
    const agent = createAgent();
    say(agent, 'q1', 'Where?');
    const first = run(agent);
    (await test.model.next()).call({ name: 'ask_city', input: {} });
    await first.ended;
    expect(outcome(first.events)).toMatchObject({
      type: 'interrupt',
      interrupts: [{ reason: 'input_required', message: 'Which city?' }],
    });
    const [interrupt] = agent.pendingInterrupts;
    const resume = [
      { interruptId: interrupt?.id ?? '', status: 'resolved' as const, payload: { city: 'Bern' } },
    ];
    const second = run(agent, { resume });
    const next = await test.model.next();
    expect(next.results).toEqual(['{"city":{"city":"Bern"}}']);
    next.answer('Bern it is.');
    await second.ended;
    expect(outcome(second.events)).toEqual({ type: 'success' });
    expect(texts(agent.messages).at(-1)).toBe('assistant: Bern it is.');
  });

  it('a new message cancels an open question', async () => {
    const agent = createAgent();
    say(agent, 'x1', 'Where?');
    const first = run(agent);
    (await test.model.next()).call({ name: 'ask_city', input: {} });
    await first.ended;
    const interruptId = agent.pendingInterrupts[0]?.id ?? '';
    say(agent, 'x2', 'Never mind');
    const second = run(agent, { resume: [{ interruptId, status: 'cancelled' as const }] });
    const next = await test.model.next();
    expect(next.body.messages.at(-1).content).toBe('Never mind');
    next.answer('Fine.');
    await second.ended;
    expect(texts(agent.messages).at(-1)).toBe('assistant: Fine.');
  });

  it('an approval names the page; it can be denied, never given', async () => {
    const agent = createAgent();
    say(agent, 'p1', 'Pay');
    const first = run(agent);
    (await test.model.next()).call({ name: 'pay', input: {} });
    await first.ended;
    expect(outcome(first.events)).toMatchObject({
      type: 'interrupt',
      interrupts: [{ reason: 'approval', message: expect.stringContaining('open http') }],
    });
    const interruptId = agent.pendingInterrupts[0]?.id ?? '';
    const approve = { interruptId, status: 'resolved' as const, payload: { approved: true } };
    await expect(run(agent, { resume: [approve] }).ended).rejects.toThrow('403');
    const second = run(agent, { resume: [{ interruptId, status: 'cancelled' as const }] });
    const next = await test.model.next();
    expect(next.results[0]).not.toBe('paid');
    next.answer('Not paid.');
    await second.ended;
    expect(texts(agent.messages).at(-1)).toBe('assistant: Not paid.');
  });

  it('GET /v2/runs/:runId continues after an event when the connection was lost', async () => {
    const agent = createAgent();
    say(agent, 'd1', 'Long');
    const first = run(agent);
    first.ended.catch(() => undefined);
    const step = await test.model.next();
    step.say('One ');
    await expect.poll(() => first.events.length).toBeGreaterThan(2);
    const { runId } = sessionIn(first.events);
    const seen = first.events.length;
    agent.abortRun();
    step.answer('two');
    const url = `${test.host.url}/v2/runs/${runId}?after=${seen}`;
    const text = await (await fetch(url, { headers: headers() })).text();
    expect(text).toMatch(new RegExp(`^id: ${seen + 1}\n`));
    expect(text).toContain('"delta":"two"');
    expect(text).not.toContain('RUN_STARTED');
    expect(text).toContain('RUN_FINISHED');
    const bob = new TestUser(test.host);
    const other = (await createKey(bob)).key;
    expect((await fetch(url, { headers: headers(other) })).status).toBe(404);
  });

  it('GET /v2/runs/:runId has the same events under the same numbers after the turn has continued', async () => {
    const tools = [{ name: 'paint', description: 'Paints', parameters: { type: 'object' } }];
    const threadId = 'numbered';
    const start = (messages: readonly object[]) =>
      fetch(`${test.host.url}/v2/agent/run`, {
        method: 'POST',
        headers: { ...headers(), 'content-type': 'application/json' },
        body: JSON.stringify({ threadId, runId: 'r', protocolVersion: '1.0', messages, tools }),
      });
    const join = (reply: Response, after: number) =>
      fetch(`${test.host.url}/v2/runs/${reply.headers.get('x-run-id')}?after=${after}`, {
        headers: headers(),
      });
    const asked = { id: 'n1', role: 'user', content: 'Blue' };
    const first = await start([asked]);
    (await test.model.next()).call({ name: 'paint', input: {} });
    const paused = await readNumbered(first);
    const call = { id: 'call_0', type: 'function', function: { name: 'paint', arguments: '{}' } };
    const second = await start([
      asked,
      { id: 'n2', role: 'assistant', toolCalls: [call] },
      { id: 'n3', role: 'tool', toolCallId: 'call_0', content: 'painted' },
    ]);
    (await test.model.next()).answer('It is blue.');
    const continued = await readNumbered(second);
    const ids = { threadId, runId: expect.any(String) };
    for (const [reply, events] of [
      [first, paused],
      [second, continued],
    ] as const) {
      const [seen, ...rest] = events.slice(1);
      const expected = rest.map((event) => ('runId' in event ? { ...event, ...ids } : event));
      expect(await readNumbered(await join(reply, seen?.number ?? 0))).toEqual(expected);
    }
  });

  it('POST /v2/agent/run shows calls whose ids the model has used in an earlier turn', async () => {
    const agent = createAgent();
    for (const n of [1, 2]) {
      say(agent, `again-${n}`, 'Add');
      const adding = run(agent);
      (await test.model.next()).call({ name: 'add', input: { a: n, b: n } });
      (await test.model.next()).answer('Added.');
      await adding.ended;
      const types = adding.events.map(({ type }) => type);
      expect(types).toEqual(expect.arrayContaining(['TOOL_CALL_START', 'TOOL_CALL_RESULT']));
    }
  });

  it('the same request again joins the run of the first one', async () => {
    const agent = createAgent();
    say(agent, 'j1', 'Once');
    const copy = agent.clone();
    const first = run(agent);
    const step = await test.model.next();
    const second = run(copy);
    step.answer('Only once.');
    await Promise.all([first.ended, second.ended]);
    expect(sessionIn(second.events).runId).toBe(sessionIn(first.events).runId);
    expect(texts(copy.messages)).toEqual(['user: Once', 'assistant: Only once.']);
  });

  it('POST /v2/runs/:runId/cancel ends the run as cancelled', async () => {
    const agent = createAgent();
    say(agent, 'c1', 'Stop me');
    const running = run(agent);
    const step = await test.model.next();
    step.say('Begin');
    await expect.poll(() => running.events.length).toBeGreaterThan(0);
    const url = `${test.host.url}/v2/runs/${sessionIn(running.events).runId}/cancel`;
    const reply = await fetch(url, { method: 'POST', headers: headers() });
    expect(await reply.json()).toEqual({ success: true });
    await running.ended;
    expect(outcome(running.events)).toEqual({ type: 'cancelled' });
  });

  it('a failed model is RUN_ERROR; no key is 401; a key for one session stays in it', async () => {
    const agent = createAgent();
    say(agent, 'f1', 'Fail');
    const failing = run(agent);
    failing.ended.catch(() => undefined);
    (await test.model.next()).fail({ message: 'broken', type: 'invalid_request_error' });
    await expect.poll(() => failing.events.at(-1)?.type).toBe('RUN_ERROR');
    const nobody = new HttpAgent({ url: `${test.host.url}/v2/agent/run` });
    say(nobody, 'n1', 'Hello');
    await expect(nobody.runAgent()).rejects.toThrow('401');
    const { runId } = sessionIn(failing.events);
    const { body } = await test.alice.request('POST', '/sessions');
    const narrow = (await createKey(test.alice, { session: body.sessionId })).key;
    const other = await fetch(`${test.host.url}/v2/runs/${runId}`, { headers: headers(narrow) });
    expect(other.status).toBe(404);
    const within = createAgent(narrow);
    say(within, 'k1', 'Hello');
    const running = run(within);
    (await test.model.next()).answer('Hi.');
    await running.ended;
    expect(sessionIn(running.events).sessionId).toBe(body.sessionId);
  });
});

it('POST /v2/agent/run sends a client before 1.0, which names no version, only outcomes that it knows', async () => {
  const start = async (threadId: string, fields: object = {}) => {
    const messages = [{ id: 'm', role: 'user', content: 'Hello' }];
    const reply = await fetch(`${test.host.url}/v2/agent/run`, {
      method: 'POST',
      headers: { ...headers(), 'content-type': 'application/json' },
      body: JSON.stringify({ threadId, runId: 'r', messages, ...fields }),
    });
    const runId = reply.headers.get('x-run-id');
    const readOutcome = async () => {
      const data = (await reply.text()).split('data: ').at(-1) ?? '';
      return JSON.parse(data).outcome;
    };
    return { runId, readOutcome };
  };
  const tools = [{ name: 'look', description: 'Looks', parameters: { type: 'object' } }];
  for (const [protocolVersion, called, cancelled] of [
    [undefined, undefined, undefined],
    ['1.0.0', { type: 'success', pendingToolCallIds: [expect.any(String)] }, { type: 'cancelled' }],
  ]) {
    const first = start(`old-1-${protocolVersion}`, { tools, protocolVersion });
    (await test.model.next()).call({ name: 'look', input: {} });
    expect(await (await first).readOutcome()).toEqual(called);
    const second = start(`old-2-${protocolVersion}`, { protocolVersion });
    (await test.model.next()).say('Begun');
    const { runId, readOutcome } = await second;
    await fetch(`${test.host.url}/v2/runs/${runId}/cancel`, { method: 'POST', headers: headers() });
    expect(await readOutcome()).toEqual(cancelled);
  }
});

it('GET /v2/agent/capabilities describes the agent', async () => {
  const reply = await fetch(`${test.host.url}/v2/agent/capabilities`, { headers: headers() });
  expect(await reply.json()).toMatchObject({
    transport: { streaming: true, resumable: true },
    humanInTheLoop: { interrupts: true },
  });
});

it('the example of docs/surfaces/ag-ui.md prints the answer', async () => {
  const folder = join(import.meta.dirname, '..');
  const page = readFileSync(join(folder, '../../docs/surfaces/ag-ui.md'), 'utf8');
  const [, code = ''] = /```js\n([\s\S]*?)```/.exec(page) ?? [];
  const env = { ...process.env, ORACLE_URL: test.host.url, ORACLE_KEY: test.key };
  const example = promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], {
    cwd: folder,
    env,
  });
  (await test.model.next()).answer('Hello to you.');
  expect((await example).stdout).toBe('Hello to you.\n');
});
