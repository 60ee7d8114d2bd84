import { once } from 'node:events';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import type { EncodedReply, ScriptedReply } from './script.ts';

interface ReceivedRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  // biome-ignore lint/suspicious/noExplicitAny: the body depends on the provider
  readonly body: any;
  /** Settles when the connection is closed or the response is sent: true if the client disconnected before the end. */
  readonly wasLeft: Promise<boolean>;
}

export interface ModelServer {
  readonly url: string;
  readonly requests: readonly ReceivedRequest[];
  close(): Promise<void>;
}

export type ModelServerOptions =
  /** One reply per request, in order; the last is repeated. */
  | { readonly script: readonly ScriptedReply[] }
  /** The reply to a request. */
  | { readonly reply: (request: ReceivedRequest) => ScriptedReply };

/** A provider's server that answers by script; `encode` knows its wire format. */
export async function startModelServer(
  options: ModelServerOptions,
  encode: (reply: ScriptedReply) => EncodedReply,
): Promise<ModelServer> {
  const requests: ReceivedRequest[] = [];
  const server = createServer((request, response) => {
    // The host asks what the server knows about its models.
    if (request.method === 'GET') return void response.writeHead(404).end();
    void receive(request, response).then((received) => {
      requests.push(received);
      const reply =
        'reply' in options
          ? options.reply(received)
          : options.script[Math.min(requests.length, options.script.length) - 1];
      if (reply) answer(response, reply, encode);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function receive(
  request: IncomingMessage,
  response: ServerResponse,
): Promise<ReceivedRequest> {
  const wasLeft = once(response, 'close').then(() => !response.writableFinished);
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += chunk;
  const { url: path = '', headers } = request;
  return { path, headers, body: JSON.parse(text), wasLeft };
}

function answer(
  response: ServerResponse,
  reply: ScriptedReply,
  encode: (reply: ScriptedReply) => EncodedReply,
): void {
  if (reply.ending === 'stalls-before-headers') return;
  if (reply.ending === 'drops-before-headers') {
    response.destroy();
    return;
  }
  if (reply.error) {
    response.writeHead(reply.error.status, {
      'content-type': 'application/json',
      ...reply.error.headers,
    });
    response.end(JSON.stringify(reply.error.body ?? {}));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.flushHeaders();
  stream(response, reply, encode(reply));
}

function stream(response: ServerResponse, reply: ScriptedReply, encoded: EncodedReply): void {
  const content = [...encoded.content, ...(reply.events ?? [])];
  const last = content.at(-1) ?? '';
  switch (reply.ending) {
    case undefined:
      response.end([...content, ...encoded.finish].join(''));
      return;
    case 'drops-after-headers':
      response.socket?.end(() => response.destroy());
      return;
    case 'drops-mid-event':
      content[content.length - 1] = last.slice(0, last.length / 2);
      break;
    case 'malformed':
      content.push('data: {"not json\n\n');
      break;
    default:
      break;
  }
  response.write(content.join(''), () => end(response, reply.ending));
}

function end(response: ServerResponse, ending: ScriptedReply['ending']): void {
  if (ending === 'stalls-before-finish') return;
  if (ending === 'ends-before-finish' || ending === 'malformed') response.end();
  // Closes the socket cleanly without the last chunk: the client must detect that the response is incomplete.
  else response.socket?.end();
}
