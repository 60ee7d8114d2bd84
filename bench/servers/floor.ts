// The floor in its own process: arguments are the model's URL, its database, its HTTP client, whether it has a tool, and the
// host's database if it stores the rows of the host.

import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { type ChatMessage, type FloorRows, openDurableRows, openFloorRows } from './floor-rows.ts';

interface FloorOptions {
  readonly modelUrl: string;
  readonly rows: FloorRows;
  readonly client: 'fetch' | 'http';
  readonly hasTool: boolean;
}

/**
 * The minimum that completes a turn: stores the user's message and the run, reads and sends the session's
 * history, stores the answer. No authentication, validation, log of frames or limits.
 */
async function startFloorServer(options: FloorOptions): Promise<string> {
  const floor = new Floor(options);
  const server = createServer((request, response) => {
    floor.answer(request, response).catch((error) => {
      console.error(error);
      response.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

class Floor {
  private readonly options: FloorOptions;

  constructor(options: FloorOptions) {
    this.options = options;
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sessionId = request.url?.split('/')[2] ?? '';
    const { message, stream } = JSON.parse(await text(request));
    const { rows } = this.options;
    const runId = rows.begin(sessionId, message);
    if (stream) response.writeHead(200, { 'content-type': 'text/event-stream' });
    let content = '';
    await this.runModel(rows.history(sessionId), (text) => {
      content += text;
      if (stream) response.write(`data: ${JSON.stringify({ content: text })}\n\n`);
    });
    const id = rows.end(sessionId, runId, content);
    if (stream) return void response.end('data: [DONE]\n\n');
    const body = JSON.stringify({ message: { type: 'ai', content, id }, sessionId });
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    });
    response.end(body);
  }

  private async runModel(messages: ChatMessage[], onText: (text: string) => void): Promise<void> {
    const { modelUrl, hasTool } = this.options;
    const client = this.options.client === 'http' ? streamByHttp : streamByFetch;
    for (;;) {
      const call = await callModel({ modelUrl, client, messages, hasTool, onText });
      if (!call) return;
      messages.push({ role: 'assistant', content: null, tool_calls: [call] }, runTool(call));
    }
  }
}

function runTool({ id, function: wanted }: FloorCall): ChatMessage {
  const { place } = JSON.parse(wanted.arguments);
  const content = JSON.stringify({ place, time: '12:00' });
  return { role: 'tool', tool_call_id: id, content };
}

interface FloorCall {
  readonly id: string;
  readonly function: { readonly name: string; readonly arguments: string };
}

const TOOL = {
  type: 'function',
  function: {
    name: 'clock',
    description: 'Returns the time in a place',
    parameters: {
      type: 'object',
      properties: { place: { type: 'string' } },
      required: ['place'],
    },
  },
};

interface ModelRequest {
  readonly modelUrl: string;
  readonly client: ModelStream;
  readonly messages: readonly ChatMessage[];
  readonly hasTool: boolean;
  readonly onText: (text: string) => void;
}

/** Calls the model, passes on its text as it arrives, and returns the tool call if there is one. */
async function callModel(request: ModelRequest): Promise<FloorCall | undefined> {
  const { modelUrl, client, messages, hasTool, onText } = request;
  const body = JSON.stringify({
    model: 'stub',
    messages: [{ role: 'system', content: 'You are helpful.' }, ...messages],
    ...(hasTool && { tools: [TOOL] }),
    stream: true,
  });
  let call: FloorCall | undefined;
  let rest = '';
  for await (const piece of client(`${modelUrl}/chat/completions`, body)) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop() ?? '';
    let text = '';
    for (const line of lines) {
      const delta = parseDelta(line);
      text += delta?.content ?? '';
      call ??= delta?.tool_calls?.[0];
    }
    if (text) onText(text);
  }
  return call;
}

interface Delta {
  readonly content?: string;
  readonly tool_calls?: readonly FloorCall[];
}

function parseDelta(line: string): Delta | undefined {
  if (!line.startsWith('data: {')) return undefined;
  return JSON.parse(line.slice(6)).choices[0]?.delta;
}

/** Posts to the model and yields its reply as it arrives. */
type ModelStream = (url: string, body: string) => AsyncIterable<string>;

const headers = { 'content-type': 'application/json' };

async function* streamByFetch(url: string, body: string): AsyncGenerator<string> {
  const reply = await fetch(url, { method: 'POST', headers, body });
  if (!reply.ok || !reply.body) throw new Error(`the model answered ${reply.status}`);
  const decoder = new TextDecoder();
  for await (const bytes of reply.body) yield decoder.decode(bytes, { stream: true });
}

const agent = new Agent({ keepAlive: true });

/** Takes less processor time than fetch. */
async function* streamByHttp(url: string, body: string): AsyncGenerator<string> {
  const reply = await postByHttp(url, body);
  if (reply.statusCode !== 200) throw new Error(`the model answered ${reply.statusCode}`);
  reply.setEncoding('utf8');
  for await (const text of reply) yield text;
}

function postByHttp(url: string, body: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', headers, agent }, resolve);
    sent.once('error', (error) => {
      // The model closed an idle connection that was reused; fetch retries by itself.
      if (sent.reusedSocket) resolve(postByHttp(url, body));
      else reject(error);
    });
    sent.end(body);
  });
}

const [modelUrl = '', database = '', client, tool, hostDatabase] = process.argv.slice(2);
const url = await startFloorServer({
  modelUrl,
  rows: hostDatabase ? openDurableRows(database, hostDatabase) : openFloorRows(database),
  client: client === 'http' ? 'http' : 'fetch',
  hasTool: tool === 'clock',
});
process.send?.({ url });
