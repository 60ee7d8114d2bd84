import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';

/** One call of the model, answered by the test step by step. */
export interface ModelTurn {
  /** The request, without the host's notes about messages. */
  // biome-ignore lint/suspicious/noExplicitAny: a test states by its assertions what it expects.
  readonly body: any;
  /** The headers of the request. */
  readonly headers: IncomingHttpHeaders;
  /** The host's notes about the messages of the user, in order. */
  readonly notes: readonly string[];
  /** Names of the tools in the request. */
  readonly tools: readonly string[];
  /** The system prompt. */
  readonly system: string;
  /** The results of the tools of the previous step, in order. */
  readonly results: readonly string[];
  /** Resolves if the host disconnects before the end of the answer. */
  readonly left: Promise<void>;
  say(text: string): void;
  think(text: string): void;
  /** Sends text and ends. */
  answer(text: string): void;
  /** Calls tools and ends the step. */
  call(...calls: readonly { readonly name: string; readonly input: object }[]): void;
  /** Ends the answer; by default with the reason `stop`. */
  finish(reason?: string): void;
  /** Ends the answer with an error in the stream. */
  fail(error: object): void;
}

/** A model server for OpenAI's chat completions that sends what the test decides. */
export interface ControlledModel {
  /** The variables of a host that uses it. */
  readonly env: Readonly<Record<string, string>>;
  /** The next call, also if it has already arrived. */
  next(): Promise<ModelTurn>;
  /** The number of calls that have arrived and were not taken. */
  readonly arrived: number;
  /** Ends the calls that were not taken, so that the next test does not receive them. */
  discard(): void;
  close(): void;
}

export async function startControlledModel(): Promise<ControlledModel> {
  const waiting: ((turn: ModelTurn) => void)[] = [];
  const arrived: ModelTurn[] = [];
  const server = createServer(async (request, response) => {
    // The host asks what the server knows about its models.
    if (request.method === 'GET') return void response.writeHead(404).end();
    const sent = (await json(request)) as ChatBody;
    const turn = { ...createTurn(sent, response), headers: request.headers };
    // Titles are created in the background; tests ignore them.
    if (turn.system.startsWith('Write a title')) return turn.finish();
    const taker = waiting.shift();
    if (taker) taker(turn);
    else arrived.push(turn);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    env: {
      MODEL: 'openai-compatible/controlled',
      MODEL_BASE_URL: `http://127.0.0.1:${port}/v1`,
    },
    get arrived() {
      return arrived.length;
    },
    discard: () => {
      waiting.splice(0);
      for (const turn of arrived.splice(0)) turn.finish();
    },
    next: async () => arrived.shift() ?? new Promise((resolve) => waiting.push(resolve)),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

interface ChatBody {
  readonly messages: readonly { readonly role: string; readonly content: string }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
}

const NOTE = /\n\n(\[Sent: .*)$/s;

function createTurn(sent: ChatBody, response: ServerResponse): Omit<ModelTurn, 'headers'> {
  const notes = sent.messages.flatMap(({ content }) => NOTE.exec(content ?? '')?.[1] ?? []);
  const messages = sent.messages.map((message) =>
    message.role === 'user' && typeof message.content === 'string'
      ? { ...message, content: message.content.replace(NOTE, '') }
      : message,
  );
  const body = { ...sent, messages };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  const send = (choice: object, more: object = {}) =>
    response.write(`data: ${JSON.stringify({ choices: [{ index: 0, ...choice }], ...more })}\n\n`);
  const finish = (finish_reason: string) => {
    const usage = { prompt_tokens: 7, completion_tokens: 3 };
    send({ delta: {}, finish_reason }, { usage });
    response.end('data: [DONE]\n\n');
  };
  const asked = body.messages.findLastIndex(({ role }) => role === 'assistant');
  return {
    body,
    notes,
    tools: body.tools?.map((tool) => tool.function.name) ?? [],
    system: body.messages[0]?.role === 'system' ? body.messages[0].content : '',
    results: body.messages
      .slice(asked)
      .filter(({ role }) => role === 'tool')
      .map(({ content }) => content),
    left: once(response, 'close').then(() =>
      response.writableFinished ? new Promise<void>(() => {}) : undefined,
    ),
    say: (content) => void send({ delta: { content } }),
    think: (reasoning_content) => void send({ delta: { reasoning_content } }),
    answer: (content) => {
      send({ delta: { content } });
      finish('stop');
    },
    call: (...calls) => {
      const tool_calls = calls.map(({ name, input }, index) => ({
        index,
        id: `call_${index}`,
        type: 'function',
        function: { name, arguments: JSON.stringify(input) },
      }));
      send({ delta: { tool_calls } });
      finish('tool_calls');
    },
    finish: (reason = 'stop') => finish(reason),
    fail: (error) => response.end(`data: ${JSON.stringify({ error })}\n\n`),
  };
}
