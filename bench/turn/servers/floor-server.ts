import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { askModel, type FloorCall } from './floor-model.ts';
import { type ChatMessage, openFloorRows } from './floor-rows.ts';
import { textByFetch, textByHttp } from './model-text.ts';

export interface FloorOptions {
  readonly modelUrl: string;
  readonly dataDir: string;
  readonly client: 'fetch' | 'http';
  readonly hasTool: boolean;
}

/**
 * The least that does a turn's work: the user's message and the run are stored, the session's
 * history is read and sent, the answer is stored. No proof of the caller, no validation, no log of
 * frames, no limits: what a good engineer writes on the first day.
 */
export async function startFloorServer(options: FloorOptions): Promise<string> {
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
  readonly #options: FloorOptions;
  readonly #rows: ReturnType<typeof openFloorRows>;

  constructor(options: FloorOptions) {
    this.#options = options;
    this.#rows = openFloorRows(options.dataDir);
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const sessionId = request.url?.split('/')[2] ?? '';
    const { message, stream } = JSON.parse(await text(request));
    const runId = this.#rows.begin(sessionId, message);
    if (stream) response.writeHead(200, { 'content-type': 'text/event-stream' });
    let content = '';
    await this.#think(this.#rows.history(sessionId), (text) => {
      content += text;
      if (stream) response.write(`data: ${JSON.stringify({ content: text })}\n\n`);
    });
    const id = this.#rows.end(sessionId, runId, content);
    if (stream) return void response.end('data: [DONE]\n\n');
    const body = JSON.stringify({ message: { type: 'ai', content, id }, sessionId });
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
    });
    response.end(body);
  }

  async #think(messages: ChatMessage[], onText: (text: string) => void): Promise<void> {
    const { modelUrl, hasTool } = this.#options;
    const client = this.#options.client === 'http' ? textByHttp : textByFetch;
    for (;;) {
      const call = await askModel({ modelUrl, client, messages, hasTool, onText });
      if (!call) return;
      messages.push({ role: 'assistant', content: null, tool_calls: [call] }, resultOf(call));
    }
  }
}

function resultOf({ id, function: wanted }: FloorCall): ChatMessage {
  const { place } = JSON.parse(wanted.arguments);
  const content = JSON.stringify({ place, time: '12:00' });
  return { role: 'tool', tool_call_id: id, content };
}
