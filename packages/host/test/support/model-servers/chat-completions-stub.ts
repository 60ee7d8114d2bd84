import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface StubOptions {
  /** How many tokens an answer has. */
  readonly tokens: number;
  /** Time between two tokens; 0 sends them all at once. */
  readonly gapMs: number;
  /** Called first, whenever the newest message is the user's. */
  readonly toolCall?: { readonly name: string; readonly input: string };
}

export interface ChatCompletionsStub {
  readonly url: string;
  readonly requestCount: () => number;
  close(): Promise<void>;
}

const TOKEN = chunk({ choices: [{ index: 0, delta: { content: 'word ' }, finish_reason: null }] });
const DONE = 'data: [DONE]\n\n';

function chunk(fields: object): string {
  return `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'stub', ...fields })}\n\n`;
}

function ending(tokens: number, finish_reason: string): string {
  const usage = { prompt_tokens: 50, completion_tokens: tokens, total_tokens: 50 + tokens };
  const last = { choices: [{ index: 0, delta: {}, finish_reason }] };
  return chunk(last) + chunk({ choices: [], usage }) + DONE;
}

/** An OpenAI-compatible server for benchmarks: it does as little as it can besides streaming. */
export async function startChatCompletionsStub(options: StubOptions): Promise<ChatCompletionsStub> {
  let requests = 0;
  const callReply = options.toolCall && callChunk(options.toolCall) + ending(10, 'tool_calls');
  const server = createServer((request, response) => {
    // The host asks what the server knows about its models.
    if (request.method === 'GET') return void response.writeHead(404).end();
    let body = '';
    request.setEncoding('utf8');
    request.on('data', (text) => {
      body += text;
    });
    request.on('end', () => {
      requests++;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      if (callReply && isFirstStep(body)) response.end(callReply);
      else stream(response, options);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requestCount: () => requests,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

function callChunk({ name, input }: NonNullable<StubOptions['toolCall']>): string {
  const id = 'call_stub';
  const call = { index: 0, id, type: 'function', function: { name, arguments: input } };
  return chunk({ choices: [{ index: 0, delta: { tool_calls: [call] }, finish_reason: null }] });
}

/** Whether the user spoke last. The calls all bear one id, so a stub is for one tool call a turn. */
function isFirstStep(body: string): boolean {
  return JSON.parse(body).messages.at(-1)?.role === 'user';
}

function stream(response: ServerResponse, { tokens, gapMs }: StubOptions): void {
  if (gapMs === 0) {
    response.end(TOKEN.repeat(tokens) + ending(tokens, 'stop'));
    return;
  }
  let left = tokens;
  const timer = setInterval(() => {
    if (left-- > 0) response.write(TOKEN);
    else response.end(ending(tokens, 'stop'));
  }, gapMs);
  response.once('close', () => clearInterval(timer));
}
