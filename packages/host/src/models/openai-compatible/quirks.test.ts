import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import type { ModelCall, ModelMessage, ModelPart } from '../model.js';
import { createOpenAiCompatibleModel } from './openai-compatible-model.js';

interface Reply {
  readonly status?: number;
  readonly type?: string;
  readonly body: string;
}

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

/** A model behind a server that sends these replies, and what that server was asked. */
async function open(...replies: (Reply | ((body: Record<string, unknown>) => Reply))[]) {
  const asked: { body: Record<string, unknown>; port: number | undefined }[] = [];
  server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const sent = JSON.parse(text);
    asked.push({ body: sent, port: request.socket.remotePort });
    const reply = replies[asked.length - 1] ?? replies[0] ?? { body: '' };
    const { status = 200, type, body } = typeof reply === 'function' ? reply(sent) : reply;
    response.writeHead(status, { 'content-type': type ?? 'text/event-stream' }).end(body);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/v1/`;
  const info = {
    id: 'openai-compatible/m',
    label: 'm',
    provider: 'openai-compatible',
  };
  const model = createOpenAiCompatibleModel({
    ...info,
    name: 'm',
    access: { baseUrl, apiKey: 'hunter2' },
  });
  const ask = async (call: Partial<ModelCall> = {}) => {
    const messages: ModelMessage[] = [{ role: 'user', content: 'hi' }];
    const signal = new AbortController().signal;
    const parts: ModelPart[] = [];
    for await (const part of model.stream({ system: '', messages, tools: [], signal, ...call }))
      parts.push(part);
    return parts;
  };
  return { ask, asked };
}

function events(...data: unknown[]): string {
  return data
    .map((one) => `data: ${typeof one === 'string' ? one : JSON.stringify(one)}\n\n`)
    .join('');
}
const delta = (fields: object, finish_reason: string | null = null) => ({
  choices: [{ delta: fields, finish_reason }],
});
const stop = delta({}, 'stop');

it.each([
  ['no [DONE]', events(delta({ content: 'ok' }), stop)],
  ['no finish reason', events(delta({ content: 'ok' }), '[DONE]')],
  ['no empty line at the end', `${events(delta({ content: 'ok' }))}data: [DONE]`],
  [
    'null everywhere',
    events(
      {
        id: null,
        choices: [{ delta: { content: 'ok', reasoning: null, tool_calls: null } }],
        usage: null,
        error: null,
      },
      stop,
    ),
  ],
  [
    'events without choices',
    events({}, { choices: [] }, { choices: null }, delta({ content: 'ok' }), stop),
  ],
  [
    'content in parts',
    events(
      delta({
        content: [
          { type: 'text', text: 'o' },
          { type: 'text', text: 'k' },
        ],
      }),
      stop,
    ),
  ],
  [
    'comments and CRLF',
    `: wait\r\n\r\n${events(delta({ content: 'ok' }), stop).replaceAll('\n', '\r\n')}`,
  ],
])('createOpenAiCompatibleModel accepts an answer with %s', async (_, body) => {
  const { ask } = await open({ body });
  const parts = await ask();
  expect(parts.map((part) => (part.type === 'text' ? part.text : '')).join('')).toBe('ok');
  expect(parts.at(-1)).toMatchObject({ type: 'finish', reason: 'stop' });
});

it('createOpenAiCompatibleModel accepts one JSON document instead of a stream', async () => {
  const message = {
    content: 'ok',
    tool_calls: [{ id: 'a', function: { name: 'now', arguments: {} } }],
  };
  const usage = { prompt_tokens: 7, completion_tokens: 2, prompt_cache_hit_tokens: 3 };
  const body = JSON.stringify({ choices: [{ message, finish_reason: 'stop' }], usage });
  const { ask } = await open({ type: 'application/json; charset=utf-8', body });
  expect(await ask()).toEqual([
    { type: 'text', text: 'ok' },
    { type: 'tool-call', call: { id: 'a', name: 'now', input: '{}' } },
    { type: 'finish', reason: 'tool-calls', usage: { input: 7, output: 2, cached: 3 } },
  ]);
});

it('createOpenAiCompatibleModel estimates usage that a server does not report', async () => {
  const { ask } = await open({ body: events(delta({ content: 'x'.repeat(40) }), stop) });
  const finish = (await ask()).at(-1);
  expect(finish).toMatchObject({ usage: { output: 10, cached: 0 } });
  expect(finish?.type === 'finish' && finish.usage.input).toBeGreaterThan(10);
});

it('createOpenAiCompatibleModel omits stream_options when the server rejects it', async () => {
  const refusal = {
    status: 422,
    type: 'application/json',
    body: '{"detail":"Extra inputs: stream_options"}',
  };
  const answer = { body: events(delta({ content: 'ok' }), stop) };
  const { ask, asked } = await open(refusal, answer, answer);
  await ask();
  await ask();
  expect(asked.map(({ body }) => 'stream_options' in body)).toEqual([true, false, false]);
});

it('createOpenAiCompatibleModel repeats every call that is rejected because of stream_options', async () => {
  const { ask, asked } = await open((body) =>
    'stream_options' in body
      ? { status: 400, type: 'application/json', body: '{"error":"Unknown field stream_options"}' }
      : { body: events(delta({ content: 'ok' }), stop) },
  );
  const answers = await Promise.all(Array.from({ length: 5 }, () => ask()));
  expect(answers.map(([first]) => first)).toEqual(Array(5).fill({ type: 'text', text: 'ok' }));
  expect(asked).toHaveLength(10);
});

it.each([
  ['length', 'length'],
  ['content_filter', 'content-filter'],
  ['weird', 'stop'],
])('createOpenAiCompatibleModel ends with %s as %s', async (given, reason) => {
  const { ask } = await open({ body: events(delta({ content: 'ok' }, given)) });
  expect((await ask()).at(-1)).toMatchObject({ reason });
});

it.each([
  ['{"error":{"message":"no","code":401}}', 'auth'],
  ['{"error":{"message":"Rate limit exceeded","code":429}}', 'rate_limit'],
  ['{"error":"upstream timed out"}', 'timeout'],
  ['{"error":{"type":"invalid_request_error","message":"too long"}}', 'unknown'],
  ['{"error":{"message":"Insufficient credits","code":402}}', 'billing'],
  ['nonsense', 'server'],
])('createOpenAiCompatibleModel reports %s in a stream as %s', async (data, kind) => {
  const { ask } = await open({ body: events(delta({ content: 'o' }), data) });
  await expect(ask()).rejects.toMatchObject({ name: 'ModelError', kind });
});

it.each([
  ['{"error":"model not found"}', 'model not found'],
  ['{"object":"error","message":"bad model"}', 'bad model'],
  ['{"detail":"Not here"}', 'Not here'],
  ['<html>a page of https://internal.example</html>', '404'],
])('createOpenAiCompatibleModel reports why a server rejects a request: %s', async (body, text) => {
  const { ask } = await open({ status: 404, type: 'application/json', body });
  await expect(ask()).rejects.toThrow(`refused the request: ${text}`);
});

it('createOpenAiCompatibleModel never repeats the key, even a short one', async () => {
  const body = '{"error":"the key hunter2 may not use this model"}';
  const { ask } = await open({ status: 400, type: 'application/json', body });
  await expect(ask()).rejects.toThrow('the key … may not use this model');
});

it('createOpenAiCompatibleModel sends encrypted reasoning back in one piece', async () => {
  const details = [
    { type: 'reasoning.text', index: 0, text: 'Let ' },
    { type: 'reasoning.text', index: 0, text: 'me', signature: 's' },
    { type: 'reasoning.encrypted', index: 1, data: 'xyz' },
  ];
  const calling = delta({ tool_calls: [{ index: 0, id: 'a', function: { name: 'now' } }] });
  const thinking = details.map((detail) =>
    delta({ reasoning: detail.text, reasoning_details: [detail] }),
  );
  const { ask, asked } = await open(
    { body: events(...thinking, calling, delta({}, 'tool_calls')) },
    { body: events(delta({ content: 'ok' }), stop) },
  );
  const finish = (await ask()).at(-1);
  const providerData = finish?.type === 'finish' ? finish.providerData : undefined;
  const toolCalls = [{ id: 'a', name: 'now', input: '{}' }];
  await ask({ messages: [{ role: 'assistant', text: '', toolCalls, providerData }] });
  expect(asked[1]?.body.messages).toMatchObject([
    {
      content: null,
      reasoning: 'Let me',
      reasoning_details: [
        { type: 'reasoning.text', text: 'Let me', signature: 's' },
        { type: 'reasoning.encrypted', data: 'xyz' },
      ],
    },
  ]);
});

it('createOpenAiCompatibleModel reuses connections', async () => {
  const { ask, asked } = await open({ body: events(delta({ content: 'ok' }), stop, '[DONE]') });
  for (let i = 0; i < 20; i++) await ask();
  // A call right after another may find the first connection not yet free.
  expect(new Set(asked.map(({ port }) => port)).size).toBeLessThan(asked.length / 2);
});

it('createOpenAiCompatibleModel retries on an idle connection that the server has closed', async () => {
  const { ask } = await open({ body: events(delta({ content: 'ok' }), stop, '[DONE]') });
  await ask();
  server?.closeIdleConnections();
  expect(await ask()).toHaveLength(2);
});
