// The floor in its own process: arguments are the model's URL, the folder for its data, its HTTP client, and whether it has a tool.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { text } from 'node:stream/consumers';

interface FloorOptions {
  readonly modelUrl: string;
  readonly dataDir: string;
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
  private readonly rows: ReturnType<typeof openFloorRows>;

  constructor(options: FloorOptions) {
    this.options = options;
    this.rows = openFloorRows(options.dataDir);
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sessionId = request.url?.split('/')[2] ?? '';
    const { message, stream } = JSON.parse(await text(request));
    const runId = this.rows.begin(sessionId, message);
    if (stream) response.writeHead(200, { 'content-type': 'text/event-stream' });
    let content = '';
    await this.runModel(this.rows.history(sessionId), (text) => {
      content += text;
      if (stream) response.write(`data: ${JSON.stringify({ content: text })}\n\n`);
    });
    const id = this.rows.end(sessionId, runId, content);
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

interface ChatMessage {
  readonly role: string;
  readonly content: string | null;
  readonly tool_calls?: readonly object[];
  readonly tool_call_id?: string;
}

const SCHEMA = `
  pragma journal_mode = wal;
  pragma synchronous = full;
  create table messages (
    id text primary key, session_id text not null, role text not null, content text not null, created_at integer not null
  );
  create index messages_by_session on messages (session_id, created_at);
  create table runs (
    id text primary key, session_id text not null, status text not null, started_at integer not null, ended_at integer
  );
`;

/** Writes the rows of a turn in two commits, one before the model call and one after. */
function openFloorRows(dataDir: string) {
  const db = new DatabaseSync(join(dataDir, `floor-${process.pid}.db`));
  db.exec(SCHEMA);
  const message = db.prepare('insert into messages values (?, ?, ?, ?, ?)');
  const run = db.prepare("insert into runs values (?, ?, 'running', ?, null)");
  const ended = db.prepare("update runs set status = 'finished', ended_at = ? where id = ?");
  const history = db.prepare(
    'select role, content from messages where session_id = ? order by created_at, rowid',
  );
  return {
    /** Stores the user's message and the run. */
    begin(sessionId: string, text: string): string {
      const runId = randomUUID();
      const now = Date.now();
      db.exec('begin immediate');
      message.run(randomUUID(), sessionId, 'user', text, now);
      run.run(runId, sessionId, now);
      db.exec('commit');
      return runId;
    },
    history: (sessionId: string) => history.all(sessionId) as unknown as ChatMessage[],
    /** Stores the answer and the end of its run. */
    end(sessionId: string, runId: string, text: string): string {
      const id = randomUUID();
      const now = Date.now();
      db.exec('begin immediate');
      message.run(id, sessionId, 'assistant', text, now);
      ended.run(now, runId);
      db.exec('commit');
      return id;
    },
  };
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

const [modelUrl = '', dataDir = '', client, tool] = process.argv.slice(2);
const url = await startFloorServer({
  modelUrl,
  dataDir,
  client: client === 'http' ? 'http' : 'fetch',
  hasTool: tool === 'clock',
});
process.send?.({ url });
